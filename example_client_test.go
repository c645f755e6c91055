package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// Acquire waits for the key; its context bounds the wait, not the lease.
func ExampleClient_Acquire() {
	s := memstore.New()
	hostA, hostB := connect(s), connect(s)
	defer hostA.Close()
	defer hostB.Close()

	lease, err := hostA.Acquire(context.Background(), "nightly-report")
	check(err)
	defer lease.Release()

	patience, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = hostB.Acquire(patience, "nightly-report")
	fmt.Println("gave up:", errors.Is(err, context.DeadlineExceeded))
	fmt.Println("because it was held:", errors.Is(err, mongolock.ErrHeld))
	// Output:
	// gave up: true
	// because it was held: true
}

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

// Inspect shows a key without touching it. A free key is no error.
func ExampleClient_Inspect() {
	ctx := context.Background()
	client := connect(memstore.New(), mongolock.WithOwner("host-a/17"))
	defer client.Close()

	lease, err := client.Acquire(ctx, "nightly-report")
	check(err)
	status, err := client.Inspect(ctx, "nightly-report")
	check(err)
	for _, holder := range status.Holders {
		fmt.Println(status.Mode, holder.Owner, status.Live(holder))
	}

	lease.Release()
	status, err = client.Inspect(ctx, "nightly-report")
	fmt.Println("free:", status.Free(), err)
	// Output:
	// exclusive host-a/17 true
	// free: true <nil>
}

// List walks the keys with a prefix, in order.
func ExampleClient_List() {
	ctx := context.Background()
	client := connect(memstore.New(), mongolock.WithOwner("host-a/17"))
	defer client.Close()

	for _, key := range []string{"order/2", "order/1", "report"} {
		lease, err := client.Acquire(ctx, key)
		check(err)
		defer lease.Release()
	}
	for status, err := range client.List(ctx, "order/") {
		check(err)
		fmt.Println(status.Key, status.Holders[0].Owner)
	}
	// Output:
	// order/1 host-a/17
	// order/2 host-a/17
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

// Resume continues a lease that another process detached, under the same token.
func ExampleClient_Resume() {
	ctx := context.Background()
	s := memstore.New()
	web, worker := connect(s), connect(s)
	defer web.Close()
	defer worker.Close()

	begun, err := web.Acquire(ctx, "order-4711")
	check(err)
	ticket, err := begun.Detach(ctx) // goes to the worker with the job
	check(err)

	resumed, err := worker.Resume(ctx, ticket)
	check(err)
	defer resumed.Release()
	fmt.Println(resumed.Key(), resumed.Token() == begun.Token())

	_, err = worker.Resume(ctx, ticket)
	fmt.Println("twice:", errors.Is(err, mongolock.ErrLost))
	// Output:
	// order-4711 true
	// twice: true
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

// Close ends every lease and releases its key. Close the client before the database
// connection that it uses.
func ExampleClient_Close() {
	ctx := context.Background()
	client := connect(memstore.New(), mongolock.TTL(time.Second))
	lease, err := client.Acquire(ctx, "nightly-report")
	check(err)

	fmt.Println(client.Close())
	fmt.Println(lease.Err())
	_, err = client.Acquire(ctx, "nightly-report")
	fmt.Println(err)
	// Output:
	// <nil>
	// mongolock: client is closed
	// mongolock: acquire "nightly-report": mongolock: client is closed
}
