package store_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A slow store delays every claim. Like every wrapper it has no feed of its own, but
// names the store that it wraps.
type slow struct{ store.Store }

func (s slow) Unwrap() store.Store { return s.Store }

func (s slow) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	time.Sleep(time.Millisecond)
	return s.Store.Acquire(ctx, c)
}

// FeedOf finds the feed of the innermost store through any number of wrappers.
func ExampleFeedOf() {
	var s store.Store = slow{slow{memstore.New()}}

	_, isFeed := s.(store.Feed)
	fmt.Println("a feed itself:", isFeed)
	fmt.Println("has one:", store.FeedOf(s) != nil)
	// Output:
	// a feed itself: false
	// has one: true
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

	ended, err := s.Release(ctx, store.ReleaseRequest{Ref: claim("holder").Ref})
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

// A holder that ran out counts for nothing, though it is still in the record. Of those that wait, the
// readers before the first writer come together, in any order.
func ExampleStatus() {
	now := time.Date(2026, time.May, 3, 2, 0, 0, 0, time.UTC)
	s := store.Status{Key: "catalogue", Mode: store.Exclusive, Now: now, Holders: []store.Holder{
		{Owner: "host-0", ExpireAt: now.Add(-time.Second)},
	}}
	for i, mode := range []store.Mode{store.Shared, store.Shared, store.Exclusive, store.Shared} {
		place := store.NewPlace(mode, 0, 1, "here")
		s.Line = append(s.Line, store.Waiter{Place: place, Owner: fmt.Sprint("host-", i+1), Since: now, Seen: now})
	}
	fmt.Println(s.Holders[0].Owner, s.Live(s.Holders[0]))
	for _, w := range s.Line {
		fmt.Println(w.Owner, s.Turn(&store.Claim{Place: w.Place}))
	}
	fmt.Println("newcomer", s.Turn(&store.Claim{}))
	// Output:
	// host-0 false
	// host-1 true
	// host-2 true
	// host-3 false
	// host-4 false
	// newcomer false
}

// A fault that left no trace is certain too.
func ExampleIsCertain() {
	refused := fmt.Errorf("no server to send it to: %w", store.ErrNotApplied)
	fmt.Println(store.IsCertain(refused), store.IsVerdict(refused))
	fmt.Println(store.IsCertain(errors.New("connection reset")))
	// Output:
	// true false
	// false
}
