package doclock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
)

// briefly leaves the level and the message of what is logged.
func briefly(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.LevelKey || a.Key == slog.MessageKey {
		return a
	}
	return slog.Attr{}
}

func ExampleWithLogger() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: briefly}))
	outbox, err := doclock.New[Message](db.Collection("outbox"), doclock.MaxAttempts(1), doclock.WithLogger(logger))
	check(err)
	defer outbox.Close()

	msg, err := outbox.TryClaim(ctx, fresh, nil)
	check(err)
	check(msg.Requeue(ctx, 0)) // it failed
	_, err = outbox.TryClaim(ctx, fresh, nil)
	fmt.Println(err)
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "doclock: ") { // the others are about the server, and differ from one to the next
			fmt.Print(line)
		}
	}
	// Output:
	// doclock: nothing to claim
	// level=WARN msg="doclock: a document was claimed too often and is set aside"
}

func ExampleWithOwner() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"), doclock.WithOwner("billing-7"))
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()
	_, err = orders.TryAcquire(ctx, doclock.ID("order-17"))
	fmt.Println(mongolock.OutcomeOf(err), "by", doc.Holder().Owner)
	// Output: held by billing-7
}

// counted counts operations.
type counted struct {
	mu  sync.Mutex // protects ops
	ops map[mongolock.Op]int
}

func (c *counted) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops[of.Op]++
	return ctx, func(mongolock.Outcome) {}
}

func ExampleWithObserver() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	seen := &counted{ops: map[mongolock.Op]int{}}
	orders, err := doclock.New[Order](db.Collection("orders"), doclock.WithObserver(seen))
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	check(doc.Release())
	seen.mu.Lock()
	defer seen.mu.Unlock()
	fmt.Println(seen.ops)
	// Output: map[acquire:1 hold:1 release:1]
}

func ExampleWithMargin() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"), doclock.With(mongolock.TTL(10*time.Minute)), doclock.WithMargin(4*time.Minute))
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()
	fmt.Println("trusted for", doc.Lease().Remaining().Round(time.Minute))
	// Output: trusted for 6m0s
}

// Without the feed, waiters poll with pauses of at most a second.
func ExampleWithoutFeed() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"), doclock.WithoutFeed())
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	time.AfterFunc(10*time.Millisecond, func() { doc.Release() })
	next, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	fmt.Println(next.Release())
	// Output: <nil>
}
