package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// TryAcquire asks once. A refusal says who holds the key, since when, what for, and for
// how long unless the holder renews.
func ExampleClient_TryAcquire() {
	ctx := context.Background()
	s := memstore.New()
	hostA := connect(s, mongolock.WithOwner("host-a/17"), mongolock.TTL(10*time.Minute))
	hostB := connect(s, mongolock.WithOwner("host-b/4"))
	defer hostA.Close()
	defer hostB.Close()

	lease, err := hostA.TryAcquire(ctx, "nightly-report", mongolock.Note("run of May 3"))
	check(err)
	defer lease.Release()

	_, err = hostB.TryAcquire(ctx, "nightly-report")
	var held *mongolock.HeldError
	if errors.As(err, &held) {
		holder := held.Holders[0]
		fmt.Printf("%s is held by %s (%s) for %v\n", held.Key, holder.Owner, holder.Note, held.Left().Round(time.Minute))
	}
	// Output: nightly-report is held by host-a/17 (run of May 3) for 10m0s
}

// Break takes a key from a holder that hangs. With enough grace the holder is
// told before the next one gets the key. With a negative grace it is only told.
func ExampleClient_Break() {
	ctx := context.Background()
	s := memstore.New()
	hostA, operator := connect(s, mongolock.WithOwner("host-a/17")), connect(s)
	defer hostA.Close()
	defer operator.Close()

	lease, err := hostA.Acquire(ctx, "nightly-report")
	check(err)
	defer lease.Release()
	broken, err := operator.Break(ctx, "nightly-report", "hangs since Monday", -1)
	check(err)
	fmt.Println("broke the lease of", broken[0].Owner)

	_ = lease.Renew(ctx) // the client does this by itself every third of the TTL
	fmt.Println(lease.Err())
	fmt.Println(errors.Is(lease.Err(), mongolock.ErrBroken), errors.Is(lease.Err(), mongolock.ErrLost))
	// Output:
	// broke the lease of host-a/17
	// mongolock: lease is lost: broken: hangs since Monday
	// true true
}

// Shutdown lets the holders finish: it cancels their contexts and waits for them.
func ExampleClient_Shutdown() {
	client := connect(memstore.New())
	working := make(chan struct{})
	go mongolock.Do(context.Background(), client, "queue-reader", func(ctx context.Context, _ *mongolock.Lease) error {
		close(working)
		<-ctx.Done()
		fmt.Println("reader: finishing the last message;", context.Cause(ctx))
		return nil
	})
	<-working

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := client.Shutdown(ctx)
	fmt.Println("main: shut down,", err)
	// Output:
	// reader: finishing the last message; mongolock: client is closed
	// main: shut down, <nil>
}

// An application may send notices of its own over the feed of a client's store.
func ExampleClient_Feed() {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for notice, err := range client.Feed().Watch(context.Background(), store.Audience{Topics: []string{"prices"}}) {
		if notice == (store.Notice{}) { // the feed is live
			_ = client.Feed().Notify(context.Background(), store.Notice{Topic: "prices", Key: "EUR", Kind: "changed"})
			continue
		}
		fmt.Println(notice.Topic, notice.Key, notice.Kind, err)
		break
	}
	// Output: prices EUR changed <nil>
}
