package doclock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testserver"
)

const rightsDB = "rights"

// guarded is a client of a server of its own that asks who its clients are. It may do
// everything there.
func guarded(t *testing.T) (root *mongo.Client, uri string) {
	t.Helper()
	uri = testserver.Start(t, "auth=1", "roles").URI
	return testserver.Connect(t, uri), uri
}

// as is the collection as somebody sees it who may do these things with it.
func as(t *testing.T, root *mongo.Client, uri, name string, actions ...string) *mongo.Collection {
	t.Helper()
	db := root.Database(rightsDB)
	for _, command := range []bson.D{
		{{Key: "createRole", Value: name}, {Key: "roles", Value: bson.A{}}, {Key: "privileges", Value: bson.A{bson.D{
			{Key: "resource", Value: bson.D{{Key: "db", Value: rightsDB}, {Key: "collection", Value: "orders"}}},
			{Key: "actions", Value: actions},
		}}}},
		{{Key: "createUser", Value: name}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{
			bson.D{{Key: "role", Value: name}, {Key: "db", Value: rightsDB}},
		}}},
	} {
		if err := db.RunCommand(t.Context(), command).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return testserver.Connect(t, uri, func(o *options.ClientOptions) {
		o.SetAuth(options.Credential{AuthSource: rightsDB, Username: name, Password: "secret"})
	}).Database(rightsDB).Collection("orders")
}

func refusedForWantOfRight(err error) bool {
	const unauthorized = 13
	refused, ok := errors.AsType[mongo.ServerError](err)
	return ok && refused.HasErrorCode(unauthorized) && !errors.Is(err, mongolock.ErrOutcomeUnknown)
}

// What docs/operations.md §10 says of rights. It takes a server of its own.
func TestFindAndUpdateAreEnoughForAllButMakingAndRemoving(t *testing.T) {
	t.Parallel()
	root, uri := guarded(t)
	orders := root.Database(rightsDB).Collection("orders")
	put(t, orders, order{ID: "o", State: "new"}, order{ID: "p", State: "other"})
	coll := as(t, root, uri, "worker", "find", "update")
	if _, err := coll.InsertOne(t.Context(), order{ID: "x"}); !refusedForWantOfRight(err) {
		t.Fatalf("the server does not look at rights: %v", err)
	}
	locks := locksOn[order](t, coll)

	doc := must(locks.Acquire(t.Context(), bson.M{"state": "new"}))(t) // which no listIndexes tells to be one
	if _, err := locks.TryAcquire(t.Context(), ID("o")); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("held: %v", err)
	}
	doc.Value.State = "paid"
	if err := errors.Join(doc.Save(t.Context()), doc.Lease().Renew(t.Context()), doc.SaveAndRelease(t.Context())); err != nil {
		t.Error(err)
	}
	paid := bson.D{{Key: "state", Value: "paid"}}
	c := must(locks.TryClaim(t.Context(), paid, oldest))(t)
	if err := c.Requeue(t.Context(), 0); err != nil {
		t.Error(err)
	}
	c = must(locks.Claim(t.Context(), paid, oldest))(t)
	if err := c.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := locks.Claim(soon, paid, oldest); !errors.Is(err, ErrNoWork) { // and no right to the wake-ups
		t.Errorf("waiting: %v", err)
	}

	before := contents(t, orders)
	if _, err := locks.TryAcquireOrCreate(t.Context(), ID("new"), order{}); !refusedForWantOfRight(err) {
		t.Errorf("created: %v", err)
	}
	if err := locks.EnsureClaimIndex(t.Context(), paid, oldest); !refusedForWantOfRight(err) {
		t.Errorf("the index: %v", err)
	}
	if after := contents(t, orders); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	c = must(locks.TryClaim(t.Context(), bson.D{{Key: "state", Value: "other"}}, nil, mongolock.TTL(2*time.Second)))(t)
	if err := c.Remove(t.Context()); !refusedForWantOfRight(err) {
		t.Errorf("removed: %v", err)
	}

	// And with the rights to these.
	locks = locksOn[order](t, as(t, root, uri, "all", "find", "update", "insert", "remove", "createIndex", "listIndexes"))
	must(locks.TryAcquireOrCreate(t.Context(), ID("new"), order{State: "made"}))(t).Release()
	made := bson.D{{Key: "state", Value: "made"}}
	if err := locks.EnsureClaimIndex(t.Context(), made, oldest); err != nil {
		t.Error(err)
	}
	if err := must(locks.TryClaim(t.Context(), made, oldest))(t).Remove(t.Context()); err != nil {
		t.Error(err)
	}
}
