package store_test

import (
	"fmt"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A holder that died under an earlier primary has run out by the date in its document. That
// date is another clock's, so the store makes sure first.
func confirming() store.Status {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return store.Status{Key: "nightly-report", Mode: store.Exclusive, Now: now, Holders: []store.Holder{
		{Owner: "worker-7", ExpireAt: now.Add(-2 * time.Second), KnownBy: now.Add(12 * time.Second)},
	}}
}

func ExampleStatus_Confirming() {
	s := confirming()
	for _, h := range s.Holders {
		fmt.Println(h.Owner, "ran out, being confirmed:", s.Confirming(h))
	}
	fmt.Println(&store.HeldError{Status: s})
	// Output:
	// worker-7 ran out, being confirmed: true
	// mongolock: "nightly-report" is held by worker-7, which ran out; that will be confirmed within 12s
}

// Three permits are taken: one holder took two.
func ExampleStatus_Taken() {
	now := time.Now()
	s := store.Status{Mode: store.Permits, Now: now, Holders: []store.Holder{
		{Owner: "worker-7", ExpireAt: now.Add(time.Second), Weight: 2}, {Owner: "worker-8", ExpireAt: now.Add(time.Second)},
		{Owner: "worker-9", ExpireAt: now}, // it ran out
	}}
	fmt.Println(s.Taken())
	// Output: 3
}

func ExampleStatus_LeftOf() {
	s := confirming()
	fmt.Println(s.LeftOf(s.Holders[0]))
	// Output: 12s
}
