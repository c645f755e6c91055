package doclock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
)

// Two clerks book on one account. Neither booking is lost.
func ExampleLocks_Update() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17", State: "open", Total: 42})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()

	book := func(amount int) error {
		return orders.Update(ctx, doclock.ID("order-17"), func(o *Order) error {
			if o.State != "open" {
				return errors.New("the order is closed") // nothing is saved
			}
			o.Total += amount // computed from the document, and from nothing that could change meanwhile
			return nil
		})
	}
	var clerks sync.WaitGroup
	for _, amount := range []int{10, -5} {
		clerks.Go(func() { check(book(amount)) })
	}
	clerks.Wait()

	check(orders.Update(ctx, doclock.ID("order-17"), func(o *Order) error {
		fmt.Println(o.Total)
		o.State = "closed"
		return nil
	}))
	fmt.Println(book(1))
	// Output:
	// 47
	// the order is closed
}

func ExampleDocument_Lease() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()
	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()

	work := doc.Lease().Context(ctx) // ends with the lease
	fmt.Println(work.Err(), doc.Lease().Token() > 0)
	// Output: <nil> true
}

func ExampleDocument_ID() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), bson.M{"_id": int32(17), "number": "A-1"})
	orders, err := doclock.New[bson.M](db.Collection("orders"))
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, bson.M{"number": "A-1"})
	check(err)
	defer doc.Release()
	fmt.Println(doc.ID().Int32())
	// Output: 17
}

func ExampleDocument_Holder() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"), doclock.WithOwner("billing-7"))
	check(err)
	defer orders.Close()
	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()
	fmt.Println(doc.Holder().Owner, doc.Holder().Since.IsZero())
	// Output: billing-7 false
}

func ExampleDocument_Save() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17", State: "new"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()
	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()

	for _, state := range []string{"paid", "packed"} {
		doc.Value.State = state
		if err := doc.Save(ctx); errors.Is(err, mongolock.ErrLost) {
			return // nothing was written: another process may have the document
		}
	}
	fmt.Println("still locked:", doc.Lease().Err() == nil)
	// Output: still locked: true
}

// In a transaction the document is saved and released with the other writes, or not at
// all.
func ExampleDocument_SaveAndRelease() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17", State: "new"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, doclock.ID("order-17")) // before the transaction
	check(err)
	defer doc.Release() // after it

	session, err := db.Client().StartSession()
	check(err)
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := db.Collection("invoices").InsertOne(ctx, bson.M{"order": "order-17"}); err != nil {
			return nil, err
		}
		doc.Value.State = "invoiced"
		return nil, doc.SaveAndRelease(ctx)
	})
	check(err)
	fmt.Println("invoiced, and free")
	// Output: invoiced, and free
}

// Release saves nothing.
func ExampleDocument_Release() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17", State: "new"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	doc.Value.State = "paid"
	check(doc.Release())

	doc, err = orders.TryAcquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()
	fmt.Println(doc.Value.State)
	// Output: new
}
