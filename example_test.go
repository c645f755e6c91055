package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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

// The locks live in a collection of their own. Every process opens the same one.
func ExampleNew() {
	ctx := context.Background()
	db, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Disconnect(ctx)

	client, err := mongolock.New(db.Database("mongolock").Collection("locks"), mongolock.WithOwner("billing on host-a"))
	check(err)
	defer client.Close() // before the connection
	fmt.Println("ready, and nothing is sent yet")
	// Output: ready, and nothing is sent yet
}

// A caller can tell these outcomes apart, and do something about each.
func Example_errors() {
	explain := func(err error) string {
		switch {
		case err == nil:
			return "done"
		case errors.Is(err, mongolock.ErrLost):
			return "the lease ended during the job: another process may be doing it now"
		case errors.Is(err, mongolock.ErrHeld):
			return "others have the key: come again later"
		case errors.Is(err, mongolock.ErrClosed):
			return "this process is stopping"
		case errors.Is(err, mongolock.ErrOutcomeUnknown):
			return "the database did not answer: the key may stay taken for a while"
		case errors.Is(err, mongolock.ErrForeign):
			return "something else is stored under the key: take another"
		}
		return "the job's own error, or the database's: " + err.Error()
	}

	s := memstore.New()
	s.Put("settings", "a document of another program")
	client := connect(s)
	lease := mustAcquire(client, "taken")
	job := func(context.Context, *mongolock.Lease) error { return nil }

	_, err := client.TryAcquire(context.Background(), "taken")
	fmt.Println(explain(err))
	fmt.Println(explain(mongolock.Do(context.Background(), client, "settings", job)))
	fmt.Println(explain(mongolock.Do(context.Background(), client, "free", job)))
	lease.Release()
	client.Close()
	fmt.Println(explain(mongolock.Do(context.Background(), client, "free", job)))
	// Output:
	// others have the key: come again later
	// something else is stored under the key: take another
	// done
	// this process is stopping
}
