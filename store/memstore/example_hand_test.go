package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A record that is not of this library is never overwritten.
func ExampleStore_Put() {
	ctx := context.Background()
	s := memstore.New()
	s.Put("settings", map[string]int{"retries": 3})

	ref := store.Ref{Key: "settings", ID: "an id", Mode: store.Exclusive}
	_, err := s.Acquire(ctx, store.Claim{Ref: ref, Limit: 1, TTL: time.Minute})
	fmt.Println(errors.Is(err, store.ErrForeign))
	// Output: true
}

func ExampleStore_Foreign() {
	s := memstore.New()
	s.Put("settings", 42)

	content, ok := s.Foreign("settings")
	fmt.Println(content, ok)
	_, ok = s.Foreign("nightly-report")
	fmt.Println(ok)
	// Output:
	// 42 true
	// false
}

// A key deleted by hand is free; its holder learns of it at its next renewal.
func ExampleStore_Delete() {
	ctx := context.Background()
	s := memstore.New()
	ref := store.Ref{Key: "nightly-report", ID: "an id", Mode: store.Exclusive}
	_, err := s.Acquire(ctx, store.Claim{Ref: ref, Limit: 1, TTL: time.Minute})
	fmt.Println(err)

	s.Delete("nightly-report")
	answers := s.Renew(ctx, []store.Renewal{{Ref: ref, TTL: time.Minute}})
	fmt.Println(errors.Is(answers[0].Err, store.ErrGone))
	// Output:
	// <nil>
	// true
}
