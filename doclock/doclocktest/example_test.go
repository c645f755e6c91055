package doclocktest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/doclock/doclocktest"
)

// An Order is a document of the code under test.
type Order struct {
	ID    string `bson:"_id"`
	State string `bson:"state"`
}

// pack stands for the code under test.
func pack(ctx context.Context, orders *doclock.Locks[Order], id string) string {
	doc, err := orders.TryAcquire(ctx, doclock.ID(id))
	switch {
	case errors.Is(err, mongolock.ErrHeld):
		return "somebody else packs it"
	case err != nil:
		return "not packed"
	}
	defer doc.Release()
	doc.Value.State = "packed"
	if err := doc.SaveAndRelease(ctx); err != nil {
		return "not packed"
	}
	return "packed"
}

// inTest stands for func TestPack(t *testing.T), because an example has no t.
func inTest(test func(t testing.TB)) {
	t := new(exampleT)
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
	}()
	test(t)
}

// An exampleT is as much of a testing.T as the examples need.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func (*exampleT) Helper()                  {}
func (*exampleT) Logf(string, ...any)      {} // of what a busy machine is late with
func (*exampleT) Failed() bool             { return false }
func (*exampleT) Output() io.Writer        { return io.Discard }
func (*exampleT) Context() context.Context { return context.Background() }
func (t *exampleT) Cleanup(f func())       { t.cleanups = append(t.cleanups, f) }

func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func ExampleNew() {
	inTest(func(t testing.TB) {
		orders := doclocktest.New[Order](t)
		orders.Insert(Order{"order-17", "new"})
		fmt.Println(pack(t.Context(), orders.Locks, "order-17"))
		fmt.Println(orders.Get(doclock.ID("order-17")).State)
	})
	// Output:
	// packed
	// packed
}

// Hold shows what the code does while another process has the document, and after that.
func ExampleLocks_Hold() {
	inTest(func(t testing.TB) {
		orders := doclocktest.New[Order](t)
		orders.Insert(Order{"order-17", "new"})
		release := orders.Hold(doclock.ID("order-17"))
		fmt.Println(pack(t.Context(), orders.Locks, "order-17"))
		release()
		fmt.Println(pack(t.Context(), orders.Locks, "order-17"))
	})
	// Output:
	// somebody else packs it
	// packed
}

// Lose shows whether the code stops when it has lost the document.
func ExampleLocks_Lose() {
	inTest(func(t testing.TB) {
		orders := doclocktest.New[Order](t)
		orders.Insert(Order{"order-17", "new"})
		doc, err := orders.Acquire(t.Context(), doclock.ID("order-17"))
		if err != nil {
			t.Fatalf("%v", err)
		}
		work := doc.Lease().Context(t.Context())
		orders.Lose(doclock.ID("order-17"))
		fmt.Println(work.Err(), errors.Is(doc.Save(t.Context()), mongolock.ErrLost))
	})
	// Output: context canceled true
}

// Fail shows what the code does while the database cannot be reached.
func ExampleLocks_Fail() {
	inTest(func(t testing.TB) {
		orders := doclocktest.New[Order](t)
		orders.Insert(Order{"order-17", "new"})
		fmt.Println(pack(t.Context(), orders.Locks, "order-17"))
		orders.Fail(errors.New("no route to host"))
		within, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		fmt.Println(pack(within, orders.Locks, "order-17"))
	})
	// Output:
	// packed
	// not packed
}

// Insert and Get reach the documents whatever becomes of the code under test.
func ExampleLocks_Insert() {
	inTest(func(t testing.TB) {
		orders := doclocktest.New[Order](t)
		orders.Insert(Order{"order-17", "new"}, Order{"order-18", "new"})
		fmt.Println(orders.Get(doclock.ID("order-18")))
	})
	// Output: {order-18 new}
}

func ExampleLocks_Get() {
	inTest(func(t testing.TB) {
		orders := doclocktest.New[Order](t)
		orders.Insert(Order{"order-17", "new"})
		fmt.Println(orders.Get(bson.M{"state": "new"}).ID)
	})
	// Output: order-17
}

// The code under test reads and writes beside its locks through Collection.
func ExampleLocks_Collection() {
	inTest(func(t testing.TB) {
		orders := doclocktest.New[Order](t)
		if _, err := orders.Collection().InsertOne(t.Context(), Order{"order-17", "new"}); err != nil {
			t.Fatalf("%v", err)
		}
		n, err := orders.Collection().CountDocuments(t.Context(), bson.M{"state": "new"})
		fmt.Println(n, err)
	})
	// Output: 1 <nil>
}
