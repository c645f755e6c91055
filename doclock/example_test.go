package doclock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"reflect"
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

func ExampleNew() {
	db := database()
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close() // before the connection
	fmt.Println("ready, and nothing is sent yet")
	// Output: ready, and nothing is sent yet
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

// An application with codecs of its own gives their registry to the locks too.
func ExampleRegistry() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), bson.M{"_id": "order-17", "items": bson.M{"pen": 2}})
	registry := bson.NewRegistry()
	registry.RegisterTypeMapEntry(bson.TypeEmbeddedDocument, reflect.TypeFor[map[string]any]()) // not bson.D

	orders, err := doclock.New[map[string]any](db.Collection("orders"), doclock.Registry(registry))
	check(err)
	defer orders.Close()
	doc, err := orders.TryAcquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()
	fmt.Println(doc.Value["items"])
	// Output: map[pen:2]
}

// The lease engine is mongolock's, and so are its options.
func ExampleWith() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"),
		doclock.With(mongolock.TTL(10*time.Second)), doclock.WithOwner("billing"))
	check(err)
	defer orders.Close()

	doc, err := orders.TryAcquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()
	_, err = orders.TryAcquire(ctx, doclock.ID("order-17"))
	var held *mongolock.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Holders[0].Owner)
	}
	fmt.Println("for less than 10 s unless renewed:", doc.Lease().Remaining() < 10*time.Second)
	// Output:
	// held by billing
	// for less than 10 s unless renewed: true
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

func ExampleLocks_Acquire() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17", State: "new"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()

	first, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	time.AfterFunc(50*time.Millisecond, func() {
		first.Value.State = "paid"
		check(first.SaveAndRelease(ctx))
	})
	second, err := orders.Acquire(ctx, doclock.ID("order-17")) // waits
	check(err)
	defer second.Release()
	fmt.Println(second.Value.State)
	// Output: paid
}

func ExampleLocks_TryAcquire() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()

	doc, err := orders.TryAcquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()

	_, err = orders.TryAcquire(ctx, doclock.ID("order-17"))
	fmt.Println("held:", errors.Is(err, mongolock.ErrHeld))
	_, err = orders.TryAcquire(ctx, doclock.ID("order-18"))
	fmt.Println("not found:", errors.Is(err, doclock.ErrNotFound))
	// Output:
	// held: true
	// not found: true
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

func ExampleLocks_TryAcquireOrCreate() {
	db := database()
	defer db.Drop(ctx)
	sagas, err := doclock.New[bson.M](db.Collection("sagas"))
	check(err)
	defer sagas.Close()

	saga, err := sagas.TryAcquireOrCreate(ctx, doclock.ID("transfer-9"), bson.M{"step": 0})
	check(err)
	defer saga.Release()
	_, err = sagas.TryAcquireOrCreate(ctx, doclock.ID("transfer-9"), bson.M{"step": 0})
	fmt.Println("held:", errors.Is(err, mongolock.ErrHeld))
	// Output: held: true
}

// Close releases the leases that the process still has.
func ExampleLocks_Close() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"), doclock.WithMargin(50*time.Millisecond))
	check(err)
	doc, err := orders.TryAcquire(ctx, doclock.ID("order-17"))
	check(err)

	check(orders.Close())
	fmt.Println(doc.Lease().Err())
	_, err = orders.TryAcquire(ctx, doclock.ID("order-17"))
	fmt.Println(errors.Is(err, mongolock.ErrClosed))
	// Output:
	// mongolock: client is closed
	// true
}

// Shutdown tells the holders to stop, and lets them finish.
func ExampleLocks_Shutdown() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	doc, err := orders.TryAcquire(ctx, doclock.ID("order-17"))
	check(err)
	go func() { // the work
		<-doc.Lease().Context(ctx).Done()
		doc.Value.State = "half done"
		check(doc.SaveAndRelease(ctx))
	}()

	patience, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	check(orders.Shutdown(patience))
	order, err := db.Collection("orders").FindOne(ctx, doclock.ID("order-17")).Raw()
	check(err)
	fmt.Println(order.Lookup("state").StringValue())
	// Output: half done
}
