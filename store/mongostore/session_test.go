package mongostore

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

type callerSession interface{ ID() bson.Raw }

func TestALockAcquiredInATransactionIsGrantedOutsideIt(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "transactions")
	f := newFixture(t)
	client := f.store.base.Soft.Database().Client()
	data := testserver.Collection(t, testserver.Client(t))
	tapped := client.Database(data.Database().Name()).Collection(data.Name())
	_, err := data.InsertOne(f.ctx(), bson.D{{Key: "_id", Value: "seed"}})
	require.NoError(t, err)
	session, err := client.StartSession()
	require.NoError(t, err)
	defer session.EndSession(f.ctx())
	ctx := mongo.NewSessionContext(f.ctx(), session)
	require.NoError(t, session.StartTransaction())
	_, err = tapped.InsertOne(ctx, bson.D{{Key: "_id", Value: "in"}})
	require.NoError(t, err)
	free, held := exclusiveClaim("free", 30*time.Second), exclusiveClaim("held", 30*time.Second)
	f.acquire(f.another(), held)
	_, err = f.store.Acquire(ctx, free)
	require.NoError(t, err)
	assert.False(t, f.absent("free"), "granted, and nobody else sees it")
	_, err = f.store.Acquire(ctx, exclusiveClaim("held", time.Second))
	assert.ErrorIs(t, err, store.ErrHeld)
	_, err = tapped.InsertOne(ctx, bson.D{{Key: "_id", Value: "after"}})
	assert.NoError(t, err, "the held key ended the caller's transaction")
	require.NoError(t, session.AbortTransaction(ctx))
	assert.False(t, f.absent("free"), "the aborted transaction freed the key")
	n, _ := data.CountDocuments(f.ctx(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "seed"}}}})
	assert.Zero(t, n, "documents of the aborted transaction")
}

func contextWithin(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
