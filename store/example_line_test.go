package store_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// awaited is a free key for which two readers wait, then a writer, then a reader.
func awaited() store.Status {
	now := time.Date(2026, time.May, 3, 2, 0, 0, 0, time.UTC)
	s := store.Status{Key: "catalogue", Now: now}
	for i, mode := range []store.Mode{store.Shared, store.Shared, store.Exclusive, store.Shared} {
		s.Line = append(s.Line, store.Waiter{Place: store.NewPlace(mode, 0, 1, "here"), Owner: fmt.Sprint("host-", i), Since: now, Seen: now})
	}
	return s
}

// A claim that is refused and has a place waits. Until the first in line has had the key, or has
// left, no other claim gets it.
func ExampleClaim() {
	ctx, s := context.Background(), memstore.New()
	claim := func(id string) store.Claim {
		return store.Claim{Ref: store.Ref{Key: "nightly-report", ID: id, Mode: store.Exclusive}, Limit: 1, TTL: time.Minute, Owner: id}
	}
	_, err := s.Acquire(ctx, claim("holder"))
	fmt.Println("holder:", err)
	waiter := claim("waiter")
	waiter.Place = store.NewPlace(store.Exclusive, 1, 1, "")
	_, err = s.Acquire(ctx, waiter)
	fmt.Println("waiter:", errors.Is(err, store.ErrHeld))

	ended, err := s.Release(ctx, store.Ending{Ref: claim("holder").Ref})
	fmt.Println("who waits is known:", ended.Line[0] == waiter.Place, err)
	_, err = s.Acquire(ctx, claim("somebody"))
	fmt.Println("somebody:", err)
	waiter.ID = "the waiter's next claim"
	grant, err := s.Acquire(ctx, waiter)
	fmt.Println("waiter:", err, len(grant.Line))
	// Output:
	// holder: <nil>
	// waiter: true
	// who waits is known: true <nil>
	// somebody: mongolock: "nightly-report" is free; 1 waiter comes first
	// waiter: <nil> 0
}

func ExampleNewPlace() {
	place := store.NewPlace(store.Permits, 3, 1, "Kq3fA9")
	fmt.Println(place[:len("p3:Kq3fA9:")], len(place))
	// Output: p3:Kq3fA9: 20
}

func ExamplePlace_Mode() {
	fmt.Println(store.NewPlace(store.Permits, 3, 1, "Kq3fA9").Mode())
	fmt.Println(store.NewPlace(store.Exclusive, 1, 1, "").Mode())
	// Output:
	// permits 3
	// exclusive 1
}

// A waiter without an address polls.
func ExamplePlace_Address() {
	fmt.Printf("%q\n", store.NewPlace(store.Exclusive, 1, 1, "Kq3fA9").Address())
	fmt.Printf("%q\n", store.NewPlace(store.Exclusive, 1, 1, "").Address())
	// Output:
	// "Kq3fA9"
	// ""
}

// The readers before the first writer come together, in any order.
func ExampleStatus_Turn() {
	s := awaited()
	for _, w := range s.Line {
		fmt.Println(w.Owner, s.Turn(&store.Claim{Place: w.Place}))
	}
	fmt.Println("newcomer", s.Turn(&store.Claim{}))
	// Output:
	// host-0 true
	// host-1 true
	// host-2 false
	// host-3 false
	// newcomer false
}

// The key is offered to the readers before the writer; and to the writer, once they are passed.
func ExampleStatus_Offered() {
	s := awaited()
	line := s.Waiting("", "")
	fmt.Println(s.Offered(line), s.Offered(line[2:]))
	// Output: 2 1
}

// A writer that died is in the way of readers for a shorter time than of other writers.
func ExampleStatus_Stale() {
	s := awaited()
	s.Now = s.Now.Add(time.Minute)
	writer := s.Line[2]
	fmt.Println(s.Stale(writer))

	s.Mode, s.Holders = store.Shared, []store.Holder{{Owner: "reader", ExpireAt: s.Now.Add(time.Minute)}}
	fmt.Println(s.Stale(writer))
	// Output:
	// false
	// true
}

// A writer passes a place whose waiter does not come.
func ExampleStatus_Waiting() {
	s := awaited()
	s.Now = s.Now.Add(time.Minute)
	s.Line[1].Seen = s.Now // the others were last seen a minute ago
	fmt.Println(len(s.Waiting("", "")), s.Offered(s.Waiting("", "")))
	fmt.Println(len(s.Waiting("", s.Line[0].Place)), s.Offered(s.Waiting("", s.Line[0].Place)))

	s.Now = s.Now.Add(time.Minute)
	fmt.Println(len(s.Waiting("", "")), s.Offered(s.Waiting("", "")))
	// Output:
	// 4 2
	// 3 1
	// 1 1
}

func ExampleHeldError_Ahead() {
	s := awaited()
	waits := &store.HeldError{Status: s, Place: s.Line[2].Place}
	fmt.Println(waits.Ahead(), waits)
	doesNot := &store.HeldError{Status: s}
	fmt.Println(doesNot.Ahead(), doesNot)
	// Output:
	// 2 mongolock: "catalogue" is free; 2 waiters come first
	// 4 mongolock: "catalogue" is free; 4 waiters come first
}

// Five permits are free, and the first in line takes four of them.
func ExampleNewPlace_weight() {
	first := store.NewPlace(store.Permits, 5, 4, "a")
	line := []store.Place{first, store.NewPlace(store.Permits, 5, 2, "b"), store.NewPlace(store.Permits, 5, 1, "c")}
	fmt.Println(store.Status{}.Offered(line), "is offered them")
	// Output: 1 is offered them
}

func ExamplePlace_Weight() {
	fmt.Println(store.NewPlace(store.Permits, 5, 1, "a").Weight(), store.NewPlace(store.Permits, 5, 4, "a").Weight())
	// Output: 1 4
}

// Two permits are taken. The first in line allows three and may have one, and then the next would be the
// fourth. The last allows more, and waits behind it.
func ExampleStatus_OfferedBeside() {
	line := []store.Place{store.NewPlace(store.Permits, 3, 1, "a"), store.NewPlace(store.Permits, 3, 1, "b"), store.NewPlace(store.Permits, 6, 1, "c")}
	s := store.Status{Mode: store.Permits}
	fmt.Println(s.OfferedBeside(line, 2))
	// Output: 1
}
