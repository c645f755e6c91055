package doclock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

const rightsDB = "rights"

// guarded starts a server that authenticates its clients, and returns a client of it
// that has all rights.
func guarded(t *testing.T) (root *mongo.Client, uri string) {
	t.Helper()
	uri = testserver.Start(t, "auth=1", "roles").URI
	return testserver.Connect(t, uri), uri
}

// as is the collection through a client that has these rights on it.
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
		require.NoError(t, db.RunCommand(t.Context(), command).Err())
	}
	return testserver.Connect(t, uri, func(o *options.ClientOptions) {
		o.SetAuth(options.Credential{AuthSource: rightsDB, Username: name, Password: "secret"})
	}).Database(rightsDB).Collection("orders")
}

// lacksRight requires that the server refused a command because of a missing right.
func lacksRight(t *testing.T, err error, what string) {
	t.Helper()
	const unauthorized = 13
	var refused mongo.ServerError
	if assert.ErrorAs(t, err, &refused, what) {
		assert.True(t, refused.HasErrorCode(unauthorized), "%s: %v", what, err)
	}
	assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, what)
}

// docs/reference.md says which rights are needed. The test takes a server of its own.
func TestOnlyCreateAndRemoveNeedMoreThanFindAndUpdate(t *testing.T) {
	t.Parallel()
	root, uri := guarded(t)
	orders := root.Database(rightsDB).Collection("orders")
	put(t, orders, order{ID: "o", State: "new"}, order{ID: "p", State: "other"})
	coll := as(t, root, uri, "worker", "find", "update")
	_, err := coll.InsertOne(t.Context(), order{ID: "x"})
	lacksRight(t, err, "an insert: the server must check rights")
	locks := locksOn[order](t, coll)

	doc := must(locks.Acquire(t.Context(), bson.M{"state": "new"}))(t) // looked up, as listIndexes is refused
	_, err = locks.TryAcquire(t.Context(), ID("o"))
	assert.ErrorIs(t, err, mongolock.ErrHeld)
	doc.Value.State = "paid"
	assert.NoError(t, doc.Save(t.Context()))
	assert.NoError(t, doc.Lease().Renew(t.Context()))
	assert.NoError(t, doc.SaveAndRelease(t.Context()))
	paid := bson.D{{Key: "state", Value: "paid"}}
	c := must(locks.TryClaim(t.Context(), paid, oldest))(t)
	assert.NoError(t, c.Requeue(t.Context(), 0))
	c = must(locks.Claim(t.Context(), paid, oldest))(t)
	assert.NoError(t, c.Complete(t.Context()))
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = locks.Claim(soon, paid, oldest)
	assert.ErrorIs(t, err, context.DeadlineExceeded, "waiting, without a right to the wake-ups")

	before := contents(t, orders)
	_, err = locks.TryAcquireOrCreate(t.Context(), ID("new"), order{})
	lacksRight(t, err, "TryAcquireOrCreate")
	lacksRight(t, locks.EnsureClaimIndex(t.Context(), paid, oldest), "EnsureClaimIndex")
	assert.Equal(t, before, contents(t, orders))
	c = must(locks.TryClaim(t.Context(), bson.D{{Key: "state", Value: "other"}}, nil, mongolock.TTL(2*time.Second)))(t)
	lacksRight(t, c.Remove(t.Context()), "Remove")

	// With these rights too they succeed.
	locks = locksOn[order](t, as(t, root, uri, "all", "find", "update", "insert", "remove", "createIndex", "listIndexes"))
	must(locks.TryAcquireOrCreate(t.Context(), ID("new"), order{State: "made"}))(t).Release()
	made := bson.D{{Key: "state", Value: "made"}}
	assert.NoError(t, locks.EnsureClaimIndex(t.Context(), made, oldest))
	assert.NoError(t, must(locks.TryClaim(t.Context(), made, oldest))(t).Remove(t.Context()))
}
