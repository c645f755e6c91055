package mongolock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store/memstore"
)

// These tests show that New works on a server. The whole library is tested there in
// internal/test/system, and the store alone in store/mongostore.

// newLocks returns a client on a collection of its own, on the server of the tests.
func newLocks(t *testing.T, opts ...mongolock.ClientOption) (*mongolock.Client, *mongo.Collection) {
	t.Helper()
	conn := testserver.Connect(t, testserver.URI(t, "mongodb"))
	coll := conn.Database("mongolock_test").Collection("locks_" + rand.Text()[:10])
	t.Cleanup(func() { _ = coll.Drop(context.Background()) })
	client, err := mongolock.New(coll, append(opts, mongolock.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client, coll
}

func documents(t *testing.T, coll *mongo.Collection) int64 {
	t.Helper()
	n, err := coll.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	return n
}

func TestALeaseIsADocumentAndIsLostWhenTheDocumentIsDeleted(t *testing.T) {
	t.Parallel()
	client, coll := newLocks(t, mongolock.TTL(pace.Of(3*time.Second)))
	lease, err := client.TryAcquire(t.Context(), "nightly-report")
	require.NoError(t, err)
	assert.EqualValues(t, 1, documents(t, coll))
	require.NoError(t, lease.Release())
	assert.Zero(t, documents(t, coll))

	lease, err = client.TryAcquire(t.Context(), "nightly-report")
	require.NoError(t, err)
	_, err = coll.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "nightly-report"}})
	require.NoError(t, err)
	select {
	case <-lease.Done():
	case <-time.After(pace.Of(5 * time.Second)):
		t.Fatal("the document was deleted by hand, and its holder is not told")
	}
	assert.ErrorIs(t, lease.Err(), mongolock.ErrLost)
}

func TestAnotherClientOfTheCollectionIsRefusedAHeldKey(t *testing.T) {
	t.Parallel()
	first, coll := newLocks(t, mongolock.WithOwner("first"))
	second, err := mongolock.New(coll)
	require.NoError(t, err)
	defer second.Close()
	lease, err := first.Acquire(t.Context(), "nightly-report")
	require.NoError(t, err)
	defer lease.Release()
	var held *mongolock.HeldError
	_, err = second.TryAcquire(t.Context(), "nightly-report")
	require.ErrorAs(t, err, &held)
	assert.Equal(t, "first", held.Holders[0].Owner)
}

func TestCloseWaitsForNothingIfNoServerWasReached(t *testing.T) {
	conn := testserver.Connect(t, "mongodb://127.0.0.1:1")
	client, err := mongolock.New(conn.Database("d").Collection("c"), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = client.Acquire(ctx, "k")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	start := time.Now()
	assert.NoError(t, client.Close())
	assert.Less(t, time.Since(start), pace.Of(time.Second), "it waited for a place in a line that nobody joined")
}

func TestNewOnANilCollectionIsRefused(t *testing.T) {
	_, err := mongolock.New(nil, mongolock.TTL(time.Nanosecond))
	assert.ErrorContains(t, err, "New: the collection is nil")
	assert.ErrorContains(t, err, "TTL(1ns)", "every fault is named in one error")
}

func TestAStoreThatNeedsNoIndexSaysSo(t *testing.T) {
	client := newClient(t, memstore.New())
	assert.ErrorIs(t, client.EnsureIndex(t.Context()), errors.ErrUnsupported)
}
