package doclocktest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

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
