package mongolocktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

// report stands for the code under test.
func report(ctx context.Context, locks mongolock.Locker) string {
	var outcome string
	ran, err := mongolock.TryDo(ctx, locks, "nightly-report", func(ctx context.Context, _ *mongolock.Lease) error {
		outcome = "written"
		return nil
	})
	switch {
	case err != nil:
		return err.Error()
	case !ran:
		return "another host is writing it"
	}
	return outcome
}

// Hold shows what the code does while another process holds the key, and after that.
func ExampleLocker_Hold() {
	lab.Example(func(t testing.TB) {
		locks := mongolocktest.New(t)
		release := locks.Hold("nightly-report")
		fmt.Println(report(t.Context(), locks))

		release()
		fmt.Println(report(t.Context(), locks))
	})
	// Output:
	// another host is writing it
	// written
}

// Lose shows whether the code stops when its lease is lost.
func ExampleLocker_Lose() {
	lab.Example(func(t testing.TB) {
		locks := mongolocktest.New(t)
		err := mongolock.Do(t.Context(), locks, "nightly-report", func(ctx context.Context, _ *mongolock.Lease) error {
			locks.Lose("nightly-report")
			fmt.Println("cause:", context.Cause(ctx))
			return ctx.Err()
		})
		fmt.Println(errors.Is(err, mongolock.ErrLost))
	})
	// Output:
	// cause: mongolock: lease is lost: no longer in the store
	// true
}

// Orders shows that code takes keys in different orders, though nothing went wrong yet. locks may as
// well be a client on a real database.
func ExampleOrders() {
	lab.Example(func(t testing.TB) {
		client, err := mongolock.NewWithStore(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		failing := &failingT{TB: t}
		locks := mongolocktest.Orders(failing, client)
		take := func(first, second string) {
			_ = mongolock.Do(t.Context(), locks, first, func(ctx context.Context, _ *mongolock.Lease) error {
				return mongolock.Do(ctx, locks, second, func(context.Context, *mongolock.Lease) error { return nil })
			})
		}
		take("order:17", "customer:3")
		fmt.Println("one order: failed is", failing.failed)
		take("customer:5", "order:18")
		fmt.Println("both: failed is", failing.failed)
	})
	// Output:
	// one order: failed is false
	// both: failed is true
}

// A failingT notes that the test fails. What it is told has the places of files.
type failingT struct {
	testing.TB
	failed bool
}

func (t *failingT) Errorf(string, ...any) { t.failed = true }
