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

// A short TTL frees the key of a crashed holder soon; a long one rides out a long
// outage of the database. Given to Acquire it holds for that lease alone.
func ExampleTTL() {
	client := connect(memstore.New(), mongolock.TTL(5*time.Minute), mongolock.WithMargin(0))
	defer client.Close()

	usual := mustAcquire(client, "nightly-report")
	defer usual.Release()
	long := mustAcquire(client, "yearly-report", mongolock.TTL(time.Hour))
	defer long.Release()
	fmt.Println(usual.Remaining().Round(time.Minute), long.Remaining().Round(time.Minute))
	// Output: 5m0s 1h0m0s
}

// A job that hangs should not hold its lock for ever, however healthy its process.
func ExampleMaxHold() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	hang := func(ctx context.Context, _ *mongolock.Lease) error {
		<-ctx.Done()
		return ctx.Err()
	}
	err := mongolock.Do(ctx, client, "nightly-report", hang, mongolock.MaxHold(10*time.Millisecond))
	fmt.Println(errors.Is(err, mongolock.ErrMaxHold), errors.Is(err, mongolock.ErrLost))
	// Output: true true
}

// MaxWait bounds the wait where a context should not: it is not an error of the
// caller's, just a key that stays taken.
func ExampleMaxWait() {
	ctx := context.Background()
	s := memstore.New()
	hostA, hostB := connect(s, mongolock.WithOwner("host-a/17")), connect(s)
	defer hostA.Close()
	defer hostB.Close()
	lease := mustAcquire(hostA, "nightly-report")
	defer lease.Release()

	_, err := hostB.Acquire(ctx, "nightly-report", mongolock.MaxWait(10*time.Millisecond))
	if held, ok := errors.AsType[*mongolock.HeldError](err); ok {
		fmt.Println("still held by", held.Holders[0].Owner)
	}
	// Output: still held by host-a/17
}

// Without renewal the key comes free one TTL after its grant, whatever happens.
func ExampleNoRenewal() {
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "cool-down", mongolock.NoRenewal(), mongolock.TTL(100*time.Millisecond))
	defer lease.Release()
	<-lease.Done()
	fmt.Println(lease.Err())
	// Output: mongolock: lease is lost: not renewed in time
}

// A job that takes a second, started by timers that are a minute apart from host
// to host, would run once on each. MinHold keeps the key taken until the last of
// them has come and gone.
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

// A note tells whoever looks at the lock what it is held for.
func ExampleNote() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()
	lease := mustAcquire(client, "nightly-report", mongolock.Note("run of May 3"))
	defer lease.Release()

	status, err := client.Inspect(ctx, "nightly-report")
	check(err)
	fmt.Println(status.Holders[0].Note)
	// Output: run of May 3
}

// The owner is for people; it plays no part in who may do what.
func ExampleWithOwner() {
	ctx := context.Background()
	client := connect(memstore.New(), mongolock.WithOwner("billing on host-a"))
	defer client.Close()
	lease := mustAcquire(client, "nightly-report")
	defer lease.Release()

	status, err := client.Inspect(ctx, "nightly-report")
	check(err)
	fmt.Println(status.Holders[0].Owner)
	// Output: billing on host-a
}

// What goes wrong in the background is logged: a lost lease is a warning.
func ExampleWithLogger() {
	s := memstore.New()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	client, err := mongolock.NewWithStore(s, mongolock.WithLogger(logger))
	check(err)
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	s.Delete("nightly-report") // somebody with a shell on the database
	_ = lease.Renew(context.Background())
	// Output:
	// level=WARN msg="mongolock: lease lost" key=nightly-report token=1 cause="mongolock: lease is lost: no longer in the store"
}

// A wider margin gives work more time to stop, and each lease less time without a
// renewal.
func ExampleWithMargin() {
	client := connect(memstore.New(), mongolock.TTL(10*time.Minute), mongolock.WithMargin(4*time.Minute))
	defer client.Close()
	lease := mustAcquire(client, "nightly-report")
	defer lease.Release()

	fmt.Println("trusted for", lease.Remaining().Round(time.Minute))
	// Output: trusted for 6m0s
}

// Without the feed waiters poll, up to a second apart.
func ExampleWithoutFeed() {
	ctx := context.Background()
	s := memstore.New()
	hostA, hostB := connect(s), connect(s, mongolock.WithoutFeed())
	defer hostA.Close()
	defer hostB.Close()

	lease := mustAcquire(hostA, "nightly-report")
	time.AfterFunc(10*time.Millisecond, func() { lease.Release() })
	err := mongolock.Do(ctx, hostB, "nightly-report", func(ctx context.Context, _ *mongolock.Lease) error {
		return report(ctx)
	})
	fmt.Println(err)
	// Output:
	// writing the report
	// <nil>
}
