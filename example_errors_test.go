package mongolock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

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

// A HeldError carries the Status of the key: who holds it, since when, and for how long.
func ExampleHeldError() {
	ctx := context.Background()
	client := connect(memstore.New(), mongolock.WithOwner("host-a/17"))
	defer client.Close()
	lease := mustAcquire(client, "nightly-report", mongolock.Note("run of May 3"))
	defer lease.Release()

	_, err := client.TryAcquire(ctx, "nightly-report")
	var held *mongolock.HeldError
	if errors.As(err, &held) {
		for _, holder := range held.Holders {
			fmt.Printf("%s: %s (%s)\n", held.Key, holder.Owner, holder.Note)
		}
	}
	// Output: nightly-report: host-a/17 (run of May 3)
}
