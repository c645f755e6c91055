package storetest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
	"github.com/mongolock/mongolock/store/storetest"
)

// A claim whose reply is lost fails, yet it holds the key.
func ExampleNewFaulty() {
	ctx := context.Background()
	s := storetest.NewFaulty(memstore.New())
	s.Next(1, storetest.ReplyLost, storetest.OpAcquire)

	claim := store.Claim{
		Ref:   store.Ref{Key: "nightly-report", ID: "an id", Mode: store.Exclusive},
		Limit: 1, TTL: time.Minute, Owner: "host-a/17",
	}
	_, err := s.Acquire(ctx, claim)
	fmt.Println(err)

	statuses, _ := s.Look(ctx, []string{claim.Key})
	fmt.Println("held by", statuses[0].Holders[0].Owner)

	settled, err := s.Undo(ctx, claim.Ref, nil)
	fmt.Println(settled, err)
	fmt.Println(s.Calls(storetest.OpAcquire), s.Calls())
	// Output:
	// storetest: injected fault: reply lost
	// held by host-a/17
	// true <nil>
	// 1 3
}
