package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// Clients made on one store exclude one another as processes on one database do.
// These are the calls that they make.
func ExampleNew() {
	ctx := context.Background()
	s := memstore.New()

	first := store.Ref{Key: "nightly-report", ID: "an id", Mode: store.Exclusive}
	grant, err := s.Acquire(ctx, store.Claim{Ref: first, Limit: 1, TTL: time.Minute, Owner: "host-a/17"})
	fmt.Println(grant.Token, grant.Left, err)

	second := store.Ref{Key: "nightly-report", ID: "another id", Mode: store.Exclusive}
	_, err = s.Acquire(ctx, store.Claim{Ref: second, Limit: 1, TTL: time.Minute, Owner: "host-b/4"})
	var held *store.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Holders[0].Owner)
	}
	// Output:
	// 1 1m0s <nil>
	// held by host-a/17
}
