package doclock_test

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
)

func ExampleLocks_Inspect() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"), doclock.WithOwner("billing"))
	check(err)
	defer orders.Close()
	doc, err := orders.Acquire(ctx, doclock.ID("order-17"), mongolock.Note("invoice run"))
	check(err)
	defer doc.Release()

	status, err := orders.Inspect(ctx, doclock.ID("order-17"))
	check(err)
	for _, h := range status.Holders {
		fmt.Println(h.Owner, "-", h.Note)
	}
	// Output: billing - invoice run
}

// The key of each status is the JSON of the document's _id.
func ExampleLocks_List() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"}, Order{ID: "order-18"}, Order{ID: "order-19"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()
	for _, id := range []string{"order-19", "order-17"} {
		doc, err := orders.Acquire(ctx, doclock.ID(id))
		check(err)
		defer doc.Release()
	}

	for status, err := range orders.List(ctx) {
		check(err)
		fmt.Println(status.Key)
	}
	// Output:
	// {"_id":"order-17"}
	// {"_id":"order-19"}
}

// An operator takes a document from a worker that hangs. The worker saves nothing later.
func ExampleLocks_Break() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17", State: "new"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()
	hangs, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)

	marked, err := orders.Break(ctx, doclock.ID("order-17"), "hangs since noon", 0)
	check(err)
	fmt.Println("taken from", len(marked), "holder")
	hangs.Value.State = "paid"
	fmt.Println("its save is refused:", errors.Is(hangs.Save(ctx), mongolock.ErrLost))
	// Output:
	// taken from 1 holder
	// its save is refused: true
}

// One process begins the work, and another finishes it under the same lease.
func ExampleLocks_Resume() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17", State: "new"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, doclock.ID("order-17"), mongolock.TTL(time.Minute))
	check(err)
	doc.Value.State = "paying"
	check(doc.Save(ctx))
	ticket, err := doc.Lease().Detach(ctx) // for the process that the payment calls back
	check(err)

	resumed, err := orders.Resume(ctx, ticket)
	check(err)
	fmt.Println(resumed.Value.State, resumed.Lease().Token() == doc.Lease().Token())
	resumed.Value.State = "paid"
	check(resumed.SaveAndRelease(ctx))
	// Output: paying true
}

func ExampleLocks_ResumeClaim() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	ticket, err := msg.Lease().Detach(ctx)
	check(err)

	msg, err = outbox.ResumeClaim(ctx, ticket)
	check(err)
	fmt.Println("message", msg.Value.ID, "attempt", msg.Attempts())
	check(msg.Complete(ctx))
	done, err := db.Collection("outbox").CountDocuments(ctx, bson.M{"lock.done": true})
	check(err)
	fmt.Println("done:", done)
	// Output:
	// message 1 attempt 1
	// done: 1
}

// Stats are the numbers of this process's part, without a command.
func ExampleLocks_Stats() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()
	order, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	defer order.Release()

	fmt.Println("held:", orders.Stats().Held, "waiting:", orders.Stats().Waiters)
	// Output: held: 1 waiting: 0
}
