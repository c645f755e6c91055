package doclock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
)

// The examples run on the server of the tests; see TestMain.
var ctx = context.Background()

var connect = sync.OnceValues(func() (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")).SetServerSelectionTimeout(10 * time.Second))
})

// database returns an empty one, in place of the application's.
func database() *mongo.Database {
	client, err := connect()
	check(err)
	return client.Database("doclock_" + rand.Text()[:8])
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func insert(coll *mongo.Collection, docs ...any) {
	_, err := coll.InsertMany(ctx, docs)
	check(err)
}

// An Order is a document of the application. Its type has no field for the lock.
type Order struct {
	ID    string `bson:"_id"`
	State string `bson:"state"`
	Total int    `bson:"total"`
}

func Example() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17", State: "new", Total: 42})

	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release() // does nothing after SaveAndRelease

	fmt.Println(doc.Value.State, doc.Value.Total)
	doc.Value.State = "paid"
	check(doc.SaveAndRelease(ctx))
	// Output: new 42
}

// Two fields are two locks on the same documents, independent of each other.
func ExampleField() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	billing, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer billing.Close()
	audit, err := doclock.New[Order](db.Collection("orders"), doclock.Field("auditLock"))
	check(err)
	defer audit.Close()

	one, err := billing.TryAcquire(ctx, doclock.ID("order-17"))
	check(err)
	defer one.Release()
	two, err := audit.TryAcquire(ctx, doclock.ID("order-17"))
	check(err)
	defer two.Release()
	fmt.Println("both have it")
	// Output: both have it
}

// A document can be named by its _id, or by the fields of a unique index.
func ExampleID() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), bson.M{"_id": 17, "tenant": "acme", "number": "A-1"})
	orders, err := doclock.New[bson.M](db.Collection("orders"))
	check(err)
	defer orders.Close()

	for _, filter := range []any{doclock.ID(17), bson.M{"tenant": "acme", "number": "A-1"}} {
		doc, err := orders.TryAcquire(ctx, filter)
		check(err)
		fmt.Println(doc.Value["_id"])
		check(doc.Release())
	}
	// Output:
	// 17
	// 17
}

func ExampleLocks_AcquireOrCreate() {
	db := database()
	defer db.Drop(ctx)
	sagas, err := doclock.New[bson.M](db.Collection("sagas"))
	check(err)
	defer sagas.Close()

	for range 2 {
		saga, err := sagas.AcquireOrCreate(ctx, doclock.ID("transfer-9"), bson.M{"step": 0})
		check(err)
		fmt.Println("step", saga.Value["step"])
		saga.Value["step"] = 1
		check(saga.SaveAndRelease(ctx))
	}
	// Output:
	// step 0
	// step 1
}

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
