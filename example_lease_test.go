package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

func ExampleLease_Key() {
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	defer lease.Release()
	fmt.Println(lease.Key())
	// Output: nightly-report
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

// Two leases of one key have different IDs.
func ExampleLease_ID() {
	client := connect(memstore.New())
	defer client.Close()

	first := mustAcquire(client, "nightly-report")
	first.Release()
	second := mustAcquire(client, "nightly-report")
	second.Release()
	fmt.Println(first.ID() == second.ID())
	// Output: false
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

func ExampleLease_Done() {
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "nightly-report", mongolock.MaxHold(10*time.Millisecond))
	defer lease.Release()
	select {
	case <-lease.Done():
		fmt.Println("stop:", lease.Err())
	case <-time.After(time.Minute):
		fmt.Println("the work is done")
	}
	// Output: stop: mongolock: lease is lost: held for its MaxHold
}

// Progress is for a lease with MaxStall: call it where the work gets on.
func ExampleLease_Progress() {
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "backup", mongolock.MaxStall(time.Minute))
	defer lease.Release()
	for range 3 {
		lease.Progress()
	}
	fmt.Println(lease.Err())
	// Output: <nil>
}

// Err looks at the clock itself. Call it before a step that cannot be undone.
func ExampleLease_Err() {
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	if err := lease.Err(); err == nil {
		fmt.Println("sending the report")
	}
	lease.Release()
	fmt.Println(lease.Err())
	// Output:
	// sending the report
	// mongolock: lease was released
}

// Remaining is the TTL less the margin, right after a grant or a renewal.
func ExampleLease_Remaining() {
	client := connect(memstore.New(), mongolock.TTL(10*time.Minute), mongolock.WithMargin(time.Minute))
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	fmt.Println(lease.Remaining().Round(time.Minute))
	lease.Release()
	fmt.Println(lease.Remaining())
	// Output:
	// 9m0s
	// 0s
}

// Renew is for leases with NoRenewal, and before a step that needs the whole TTL.
func ExampleLease_Renew() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "nightly-report", mongolock.NoRenewal())
	fmt.Println(lease.Renew(ctx))

	lease.Release()
	fmt.Println(lease.Renew(ctx))
	// Output:
	// <nil>
	// mongolock: renew "nightly-report": mongolock: lease was released
}

// Release may be called twice. It reports whether the lease was lost before.
func ExampleLease_Release() {
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	fmt.Println(lease.Release())
	fmt.Println(lease.Release())

	lost := mustAcquire(client, "nightly-report", mongolock.MaxHold(10*time.Millisecond))
	<-lost.Done()
	fmt.Println(errors.Is(lost.Release(), mongolock.ErrLost))
	// Output:
	// <nil>
	// <nil>
	// true
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

// A lease in a log line shows key, token and state, never its ID.
func ExampleLease_LogValue() {
	client := connect(memstore.New())
	defer client.Close()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))

	lease := mustAcquire(client, "nightly-report")
	lease.Release()
	logger.Info("done", "lease", lease)
	// Output:
	// level=INFO msg=done lease.key=nightly-report lease.token=1 lease.ended="mongolock: lease was released"
}

// withoutTime removes the time from log lines, so that the output is always the same.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// A long job looks between two pieces whether somebody waits for the key.
func ExampleLease_Wanted() {
	client := connect(memstore.New())
	defer client.Close()
	lease := mustAcquire(client, "index")
	wanted := func() bool {
		select {
		case <-lease.Wanted():
			return true
		default:
			return false
		}
	}
	fmt.Println(wanted())

	next := make(chan error)
	go func() { next <- mustAcquire(client, "index").Release() }()
	for !wanted() {
		time.Sleep(time.Millisecond) // a piece of the work
	}
	fmt.Println(lease.Release())
	fmt.Println(<-next)
	// Output:
	// false
	// <nil>
	// <nil>
}
