package store_test

import (
	"context"
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

// taken is a key with two readers; the first expired a minute ago.
func taken() store.Status {
	now := time.Date(2026, time.May, 3, 2, 0, 0, 0, time.UTC)
	return store.Status{
		Key: "catalogue", Mode: store.Shared, Now: now,
		Holders: []store.Holder{
			{Owner: "host-a/17", ExpireAt: now.Add(-time.Minute)},
			{Owner: "host-b/4", ExpireAt: now.Add(30 * time.Second)},
		},
	}
}

// An expired holder counts for nothing, though it is still in the record.
func ExampleStatus_Live() {
	status := taken()
	for _, holder := range status.Holders {
		fmt.Println(holder.Owner, status.Live(holder))
	}
	// Output:
	// host-a/17 false
	// host-b/4 true
}

func ExampleStatus_Free() {
	status := taken()
	fmt.Println(status.Free())

	status.Now = status.Now.Add(time.Hour)
	fmt.Println(status.Free())
	// Output:
	// false
	// true
}

// Left counts from the moment of the Status, by the store's clock.
// It is the time of the holder that expires last.
func ExampleStatus_Left() {
	fmt.Println(taken().Left())
	// Output: 30s
}
