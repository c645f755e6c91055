package doclock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
)

// The examples need a server, so they are not run as such. What each prints stands at
// its end, and TestTheExamplesPrintWhatTheySay runs and compares it.
var (
	ctx = context.Background()
	db  *mongo.Database // of the application
)

type Order struct {
	ID    string `bson:"_id"`
	State string `bson:"state"`
	Total int    `bson:"total"`
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

func ExampleLocks_Acquire() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
	insert(db.Collection("orders"), Order{ID: "order-17", State: "new", Total: 42})

	orders, err := doclock.New[Order](db.Collection("orders"))
	check(err)
	defer orders.Close()

	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()

	fmt.Println(doc.Value.State, doc.Value.Total)
	doc.Value.State = "paid"
	check(doc.SaveAndRelease(ctx))
	// Prints:
	// new 42
}

func ExampleLocks_TryAcquire() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
	insert(db.Collection("orders"), Order{ID: "order-17"})
	orders, err := doclock.New[Order](db.Collection("orders"), doclock.With(mongolock.WithOwner("billing")))
	check(err)
	defer orders.Close()

	doc, err := orders.TryAcquire(ctx, doclock.ID("order-17"))
	check(err)
	defer doc.Release()

	_, err = orders.TryAcquire(ctx, doclock.ID("order-17"))
	if held, ok := errors.AsType[*mongolock.HeldError](err); ok {
		fmt.Println("held by", held.Holders[0].Owner)
	}
	_, err = orders.TryAcquire(ctx, doclock.ID("order-18"))
	fmt.Println("not found:", errors.Is(err, doclock.ErrNotFound))
	// Prints:
	// held by billing
	// not found: true
}

func ExampleLocks_AcquireOrCreate() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
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
	// Prints:
	// step 0
	// step 1
}

func ExampleLocks_TryAcquireOrCreate() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
	sagas, err := doclock.New[bson.M](db.Collection("sagas"))
	check(err)
	defer sagas.Close()

	saga, err := sagas.TryAcquireOrCreate(ctx, doclock.ID("transfer-9"), bson.M{"step": 0})
	check(err)
	defer saga.Release()
	_, err = sagas.TryAcquireOrCreate(ctx, doclock.ID("transfer-9"), bson.M{"step": 0})
	fmt.Println("held:", errors.Is(err, mongolock.ErrHeld))
	// Prints:
	// held: true
}

// A lock of its own for each purpose: the two do not know of each other.
func ExampleField() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
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
	fmt.Println(err)
	defer two.Release()
	// Prints:
	// <nil>
}

func ExampleDocument_Save() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
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
			return // nothing was written: somebody else may be at it
		}
	}
	fmt.Println("still locked:", doc.Lease().Err() == nil)
	// Prints:
	// still locked: true
}

// In a transaction the document is saved and freed with the rest, or not at all.
func ExampleDocument_SaveAndRelease() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
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
	fmt.Println(err)
	// Prints:
	// <nil>
}

type Message struct {
	ID    int    `bson:"_id"`
	State string `bson:"state"`
}

var (
	fresh  = bson.D{{Key: "state", Value: "new"}}
	oldest = bson.D{{Key: "_id", Value: 1}}
)

func ExampleLocks_Claim() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()
	check(outbox.EnsureClaimIndex(ctx, fresh, oldest))

	go func() { // the producer, in another process
		insert(db.Collection("outbox"), Message{1, "new"}, Message{2, "new"})
		check(doclock.Announce(ctx, db.Collection("outbox")))
	}()
	for range 2 {
		msg, err := outbox.Claim(ctx, fresh, oldest) // waits for work
		check(err)
		fmt.Println("sent", msg.Value.ID)
		msg.Value.State = "sent"
		check(msg.Complete(ctx))
	}
	// Prints:
	// sent 1
	// sent 2
}

func ExampleClaimed_Requeue() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	fmt.Println("attempt", msg.Attempts())
	check(msg.Requeue(ctx, time.Minute)) // the receiver is away: not before a minute from now

	_, err = outbox.TryClaim(ctx, fresh, oldest)
	fmt.Println(errors.Is(err, doclock.ErrNoWork))
	// Prints:
	// attempt 1
	// true
}

func ExampleClaimed_Remove() { //nolint:testableexamples // needs a server; see TestTheExamplesPrintWhatTheySay
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	check(msg.Remove(ctx))
	left, err := db.Collection("outbox").CountDocuments(ctx, bson.D{})
	fmt.Println(left, err)
	// Prints:
	// 0 <nil>
}
