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

// connect makes one process's client on s. The examples are quiet; a client of
// yours logs to slog.Default().
func connect(s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	quiet := mongolock.WithLogger(slog.New(slog.DiscardHandler))
	client, err := mongolock.NewWithStore(s, append([]mongolock.ClientOption{quiet}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// check stands for what you do about errors.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A nightly job that every host starts, and one does.
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

// Do waits for the key, works and gives the key back.
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

// TryDo leaves the work to whoever has the key already.
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

// One client per process and store; what it is given as options holds for every
// lease that does not say otherwise.
func ExampleNewWithStore() {
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.TTL(time.Minute), mongolock.WithOwner("host-a/billing"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_, err = mongolock.NewWithStore(memstore.New(), mongolock.TTL(0), mongolock.WithOwner(""))
	fmt.Println(err) // all that is wrong with it
	// Output:
	// mongolock: TTL(0s): must be between 100ms and a year (8760h0m0s)
	// mongolock: WithOwner is empty
}

// Code that takes a Locker can be given a fake. (Package mongolocktest has a
// better one.)
func ExampleLocker() {
	var locks mongolock.Locker = outOfReach{}
	err := mongolock.Do(context.Background(), locks, "nightly-report", func(ctx context.Context, _ *mongolock.Lease) error {
		return report(ctx)
	})
	fmt.Println(err)
	// Output: no route to host
}

// outOfReach is a Locker whose database is never there.
type outOfReach struct{}

func (outOfReach) Acquire(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return nil, errors.New("no route to host")
}

func (o outOfReach) TryAcquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return o.Acquire(ctx, key, opts...)
}
