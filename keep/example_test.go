package keep_test

import (
	"context"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/keep"
	"github.com/mongolock/mongolock/store/memstore"
)

// One process updates an index often, and another seldom. The first acquires the key once, and the other
// gets it as soon as it asks.
func ExampleNew() {
	ctx, locks := context.Background(), memstore.New()
	client, err := mongolock.NewWithStore(locks)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	index, err := keep.New(client, "index", 10*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer index.Close()

	tokens := map[int64]int{}
	for range 1000 {
		_ = index.Do(ctx, func(_ context.Context, lease *mongolock.Lease) error {
			tokens[lease.Token()]++
			return nil
		})
	}
	fmt.Println(len(tokens), "lease for 1000 uses")

	other, err := mongolock.NewWithStore(locks)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Close()
	fmt.Println(mongolock.Do(ctx, other, "index", func(context.Context, *mongolock.Lease) error { return nil }))
	// Output:
	// 1 lease for 1000 uses
	// <nil>
}
