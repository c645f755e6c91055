package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// mustAcquire acquires a key in examples that are about what comes afterwards.
func mustAcquire(l mongolock.Locker, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	lease, err := l.Acquire(context.Background(), key, opts...)
	check(err)
	return lease
}

// With the token the resource itself can refuse a holder that comes too late.
func ExampleLease_Token() {
	client := connect(memstore.New())
	defer client.Close()

	var highest int64 // kept with the resource
	write := func(token int64) error {
		if token < highest {
			return errors.New("refused: a later holder was here")
		}
		highest = token
		return nil
	}

	late := mustAcquire(client, "account-7")
	late.Release() // the database considers it ended; the holder may be asleep
	next := mustAcquire(client, "account-7")
	defer next.Release()
	fmt.Println("next:", write(next.Token()))
	fmt.Println("late:", write(late.Token()))
	// Output:
	// next: <nil>
	// late: refused: a later holder was here
}

// Work on the lease's context stops with the lease. The cause says why.
func ExampleLease_Context() {
	s := memstore.New()
	client := connect(s)
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	ctx := lease.Context(context.Background())
	fmt.Println(ctx.Err())

	s.Delete("nightly-report") // an operator deletes the record
	_ = lease.Renew(ctx)       // the client does this by itself every third of the TTL
	fmt.Println(ctx.Err())
	fmt.Println(context.Cause(ctx))
	// Output:
	// <nil>
	// context canceled
	// mongolock: lease is lost: no longer in the store
}

// Detach leaves the key taken, for the process that resumes the ticket within the TTL.
func ExampleLease_Detach() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "order-4711")
	ticket, err := lease.Detach(ctx)
	check(err)
	fmt.Println(lease.Err())
	_, err = client.TryAcquire(ctx, "order-4711")
	fmt.Println("held:", errors.Is(err, mongolock.ErrHeld))

	resumed, err := client.Resume(ctx, ticket)
	check(err)
	fmt.Println("given back:", resumed.Release())
	// Output:
	// mongolock: lease was detached
	// held: true
	// given back: <nil>
}

// A job that gets on may take as long as it likes; one that hangs loses its lock.
func ExampleMaxStall() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	copyAll := func(ctx context.Context, lease *mongolock.Lease) error {
		for _, file := range []string{"a", "b"} {
			fmt.Println("copied", file)
			lease.Progress()
		}
		<-ctx.Done() // and then the disk hangs
		return ctx.Err()
	}
	err := mongolock.Do(ctx, client, "backup", copyAll, mongolock.MaxStall(10*time.Millisecond))
	fmt.Println(errors.Is(err, mongolock.ErrStalled), errors.Is(err, mongolock.ErrLost))
	// Output:
	// copied a
	// copied b
	// true true
}

// A job takes a second, and every host starts it by a timer. If the timers are up to a
// minute apart, each host would run the job. MinHold keeps the key taken until the last
// timer has fired.
func ExampleMinHold() {
	ctx := context.Background()
	s := memstore.New()
	hostA, hostB := connect(s), connect(s)
	defer hostA.Close()
	defer hostB.Close()

	run := func(client *mongolock.Client) bool {
		job := func(context.Context, *mongolock.Lease) error { return nil }
		ran, err := mongolock.TryDo(ctx, client, "nightly-report", job, mongolock.MinHold(5*time.Minute))
		check(err)
		return ran
	}
	fmt.Println(run(hostA), run(hostB))
	// Output: true false
}

// A batch gives way to others between two pieces, and goes on later.
func ExampleYielding() {
	store := memstore.New()
	batch, urgent := connect(store), connect(store)
	defer batch.Close()
	defer urgent.Close()

	lease := mustAcquire(batch, "index", mongolock.Yielding())
	done := make(chan error)
	go func() { done <- mustAcquire(urgent, "index").Release() }()
	for {
		select {
		case <-lease.Wanted():
			fmt.Println("making room after some pieces:", lease.Release())
		case <-time.After(time.Millisecond): // your work on a piece
			continue
		}
		break
	}
	fmt.Println(<-done)
	// Output:
	// making room after some pieces: <nil>
	// <nil>
}
