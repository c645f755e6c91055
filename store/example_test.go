package store_test

import (
	"context"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A slow store takes its time over every claim. Like every wrapper it has no feed
// of its own, but says what it wraps.
type slow struct{ store.Store }

func (s slow) Unwrap() store.Store { return s.Store }

func (s slow) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	time.Sleep(time.Millisecond)
	return s.Store.Acquire(ctx, c)
}

// A wrapper with Unwrap keeps the wake-ups of the store inside.
func ExampleFeedOf() {
	var s store.Store = slow{slow{memstore.New()}}

	_, isFeed := s.(store.Feed)
	fmt.Println("a feed itself:", isFeed)
	fmt.Println("has one:", store.FeedOf(s) != nil)
	// Output:
	// a feed itself: false
	// has one: true
}

// taken is a key with two readers, one of whom ran out a minute ago.
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

// A holder past its time counts for nothing, present or not.
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
func ExampleStatus_Left() {
	fmt.Println(taken().Left())
	// Output: 30s
}

// A key that readers left, and for which a writer waits, is free and yet kept from
// other readers.
func ExampleStatus_Reserved() {
	status := store.Status{Key: "catalogue", Now: time.Date(2026, time.May, 3, 2, 0, 0, 0, time.UTC)}
	status.ExclusiveWantedUntil = status.Now.Add(10 * time.Second)
	fmt.Println(status.Free(), status.Reserved())

	status.Now = status.Now.Add(time.Minute)
	fmt.Println(status.Free(), status.Reserved())
	// Output:
	// true true
	// true false
}

// A writer that waits keeps readers out for a while at a time, and leaves its word
// again before it is over; one that died does not.
func ExampleClaim_Reserve() {
	claim := store.Claim{Ref: store.Ref{Mode: store.Exclusive}, TTL: 20 * time.Second, Want: time.Hour}
	fmt.Println(claim.Reserve())

	claim.TTL = 365 * 24 * time.Hour
	fmt.Println(claim.Reserve())

	claim.Mode = store.Shared
	fmt.Println(claim.Reserve())
	// Output:
	// 20s
	// 30s
	// 0s
}

// A wrapper with Unwrap keeps what the store inside can do.
func ExampleWithdrawerOf() {
	fmt.Println(store.WithdrawerOf(slow{memstore.New()}) != nil)
	// Output: true
}
