package doclocktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/doclock/doclocktest"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
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

// Hold shows what the code does while another process has the document, and after that.
func ExampleLocks_Hold() {
	lab.Example(func(t testing.TB) {
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
