package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// report is a job that only one process may do at a time.
func report(ctx context.Context) error {
	fmt.Println("writing the report")
	return ctx.Err()
}

// connect returns the client of one process on s. It logs nothing; by default a client
// logs to slog.Default().
func connect(s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	quiet := mongolock.WithLogger(slog.New(slog.DiscardHandler))
	client, err := mongolock.NewWithStore(s, append([]mongolock.ClientOption{quiet}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// check stands for the error handling of your program.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Every host starts the nightly job, and one of them runs it.
func Example() {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ran, err := mongolock.TryDo(ctx, client, "nightly-report", func(ctx context.Context, lease *mongolock.Lease) error {
		return report(ctx) // ctx ends when the lease does
	})
	switch {
	case err != nil:
		log.Print("nightly report: ", err)
	case !ran:
		fmt.Println("another host is at it")
	}
	// Output: writing the report
}

// Do waits for the key, runs the function and releases the key.
func ExampleDo() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	err := mongolock.Do(ctx, client, "nightly-report", func(ctx context.Context, lease *mongolock.Lease) error {
		fmt.Println("holding", lease.Key())
		return errors.New("out of paper")
	})
	fmt.Println("error:", err)
	// Output:
	// holding nightly-report
	// error: out of paper
}

// TryDo leaves the work to the process that already holds the key.
func ExampleTryDo() {
	ctx := context.Background()
	s := memstore.New()
	hostA, hostB := connect(s), connect(s)
	defer hostA.Close()
	defer hostB.Close()

	work := func(context.Context, *mongolock.Lease) error {
		ran, err := mongolock.TryDo(ctx, hostB, "nightly-report", func(ctx context.Context, _ *mongolock.Lease) error {
			return report(ctx)
		})
		fmt.Println("host B ran:", ran, err)
		return nil
	}
	ran, err := mongolock.TryDo(ctx, hostA, "nightly-report", work)
	fmt.Println("host A ran:", ran, err)
	// Output:
	// host B ran: false <nil>
	// host A ran: true <nil>
}

// A process has one client for each store. The client's options apply to every lease that
// has none of its own.
func ExampleNewWithStore() {
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.TTL(time.Minute), mongolock.WithOwner("host-a/billing"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_, err = mongolock.NewWithStore(memstore.New(), mongolock.TTL(0), mongolock.WithOwner(""))
	fmt.Println(err) // the error names every invalid option
	// Output:
	// mongolock: TTL(0s): must be between 100ms and a year (8760h0m0s)
	// mongolock: WithOwner is empty
}

// Code that takes a Locker can be tested with a fake. Package mongolocktest has a better
// one.
func ExampleLocker() {
	var locks mongolock.Locker = outOfReach{}
	err := mongolock.Do(context.Background(), locks, "nightly-report", func(ctx context.Context, _ *mongolock.Lease) error {
		return report(ctx)
	})
	fmt.Println(err)
	// Output: no route to host
}

// outOfReach is a Locker whose database cannot be reached.
type outOfReach struct{}

func (outOfReach) Acquire(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return nil, errors.New("no route to host")
}

func (o outOfReach) TryAcquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return o.Acquire(ctx, key, opts...)
}
