package mongostore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// round takes n keys and returns the renewals of all of them.
func (f *fixture) round(n int, ttl time.Duration) (batch []store.Renewal) {
	for i := range n {
		c := exclusiveClaim(fmt.Sprintf("k%d", i), ttl)
		f.acquire(f.store, c)
		batch = append(batch, store.Renewal{Ref: c.Ref, TTL: c.TTL})
	}
	return batch
}

func TestABulkOfRenewalsWhoseReplyIsLostIsAskedAfter(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f, line := newFixtureOnLine(t)
	batch := f.round(5, 30*time.Second)
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Lose: name == "update"} })
	// The bound of a renewal. After a lost connection the driver may wait half a second for its next heartbeat.
	ctx, cancel := context.WithTimeout(t.Context(), pace.Of(3*time.Second))
	defer cancel()
	for i, r := range f.store.Renew(ctx, batch) {
		require.NoError(t, r.Err, "renewal %d was applied, though the reply of its bulk was lost", i)
		assert.Greater(t, r.Left, 30*time.Second-pace.Of(2*time.Second))
	}
}

// A bulk waits for a document that an open transaction has written. The renewals before that
// document in the bulk are applied.
func TestABlockedDocumentCostsTheRenewalsBeforeItNothing(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "transactions")
	f := newFixture(t)
	batch := f.round(4, 30*time.Second)
	session, err := f.coll.Database().Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	require.NoError(t, session.StartTransaction())
	within := mongo.NewSessionContext(t.Context(), session)
	_, err = f.coll.UpdateOne(within, bson.D{{Key: "_id", Value: "k2"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "touched", Value: true}}}})
	require.NoError(t, err)

	answers := f.store.Renew(f.brief(), batch)
	require.NoError(t, session.AbortTransaction(t.Context()))
	assert.NoError(t, answers[0].Err)
	assert.NoError(t, answers[1].Err)
	assert.Error(t, answers[2].Err, "the blocked one is not renewed")
	assert.False(t, store.IsCertain(answers[2].Err), "%v", answers[2].Err)
}

func TestThroughARouterABulkWhoseFirstDocumentsAreGoneRenewsTheOthers(t *testing.T) {
	t.Parallel()
	f, _ := asRouter(t, unsharded)
	batch := f.round(6, 30*time.Second)
	for _, r := range batch[:4] {
		_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: r.Key}})
		require.NoError(t, err)
	}
	waiter := f.waits(f.store, exclusiveClaim(batch[5].Key, 30*time.Second))
	for i, r := range f.store.Renew(f.ctx(), batch) {
		if i < 4 {
			assert.ErrorIs(t, r.Err, store.ErrGone, "renewal %d", i)
			continue
		}
		assert.NoError(t, r.Err, "renewal %d", i)
		if i == 5 {
			assert.Equal(t, []store.Place{waiter.Place}, r.Line, "the documents are read, and show who waits")
		} else {
			assert.Empty(t, r.Line)
		}
	}
	for i, r := range f.store.Renew(f.ctx(), batch[:2]) {
		assert.ErrorIs(t, r.Err, store.ErrGone, "renewal %d, of a bulk of which nothing is left", i)
	}
}
