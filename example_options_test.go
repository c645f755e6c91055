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

// A short TTL frees the key of a crashed holder soon; a long one outlasts a long outage of
// the database. A TTL given to Acquire applies to that lease alone.
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

// MaxWait bounds the wait without a context: the error then says that the key is held, not
// that the caller's time is over.
func ExampleMaxWait() {
	ctx := context.Background()
	s := memstore.New()
	hostA, hostB := connect(s, mongolock.WithOwner("host-a/17")), connect(s)
	defer hostA.Close()
	defer hostB.Close()
	lease := mustAcquire(hostA, "nightly-report")
	defer lease.Release()

	_, err := hostB.Acquire(ctx, "nightly-report", mongolock.MaxWait(10*time.Millisecond))
	var held *mongolock.HeldError
	if errors.As(err, &held) {
		fmt.Println("still held by", held.Holders[0].Owner)
	}
	// Output: still held by host-a/17
}

// Without renewal the key becomes free one TTL after its grant, whatever happens.
func ExampleNoRenewal() {
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "cool-down", mongolock.NoRenewal(), mongolock.TTL(100*time.Millisecond))
	defer lease.Release()
	<-lease.Done()
	fmt.Println(lease.Err())
	// Output: mongolock: lease is lost: not renewed in time
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

// A note says what the key is held for, to everyone who inspects it.
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

// The owner is for people to read. It has no influence on who gets the key.
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

// Problems in the background are logged. A lost lease is a warning.
func ExampleWithLogger() {
	s := memstore.New()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	client, err := mongolock.NewWithStore(s, mongolock.WithLogger(logger))
	check(err)
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	s.Delete("nightly-report") // an operator deletes the record
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

// Without the feed, waiters poll with pauses of at most a second.
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
