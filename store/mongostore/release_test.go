package mongostore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// takenMeanwhile releases a key that another process releases and takes before the command is sent.
// It returns whether that one still holds the key then.
func takenMeanwhile(t *testing.T) (held bool) {
	f := newFixture(t)
	c, next := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
	f.acquire(f.store, c)
	var once sync.Once
	late := f.another(func(o *options.ClientOptions) {
		o.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "findAndModify" {
				once.Do(func() {
					assert.NoError(t, released(context.WithoutCancel(t.Context()), f.store, c.Ref, 0))
					_, err := f.store.Acquire(context.WithoutCancel(t.Context()), next)
					assert.NoError(t, err)
				})
			}
		}})
	})
	if err := released(f.ctx(), late, c.Ref, 0); err != nil {
		require.ErrorIs(t, err, store.ErrGone)
	}
	all, err := f.store.Look(f.ctx(), []string{"k"})
	require.NoError(t, err)
	return len(all[0].Holders) == 1 && all[0].Holders[0].ID == next.ID
}

func TestALateReleaseRemovesNoOtherHolder(t *testing.T) {
	t.Parallel()
	assert.True(t, takenMeanwhile(t), "the next holder was removed")
}

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

// A claimant looks at a reader that is broken. The break is rolled back, another reader joins,
// and the driver's retry of the break arrives. A revision that the break chose would then stand
// for two documents, and the claimant's compare-and-swap would drop a reader that it never saw.
func TestABreakThatIsRepeatedAfterARollbackHidesNoReaderThatJoinedMeanwhile(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "!router")
	f, line := newFixtureOnLine(t)
	other := f.another()
	restore := func(document bson.Raw) {
		_, err := f.coll.ReplaceOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}, document)
		require.NoError(t, err)
	}
	look := func() bson.Raw {
		raw, err := f.coll.FindOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}).Raw()
		require.NoError(t, err)
		return raw
	}
	broken, joined := sharedClaim("k", time.Minute), sharedClaim("k", time.Minute)
	f.acquire(other, broken)
	alone := look()
	f.acquire(other, joined)
	both := look()
	restore(alone)
	f.tap.Take()
	require.NoError(t, f.store.Break(f.ctx(), broken.Ref, "in the way", false))
	sent := f.tap.Take()
	require.Len(t, sent, 1)
	f.expire(broken.Ref, time.Second)

	swaps := 0
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if isModify(name) && isTakeover(c) {
			if swaps++; swaps == 1 {
				restore(both)
				again := bson.D{{Key: "findAndModify", Value: f.coll.Name()}, {Key: "query", Value: sent[0].Lookup("query")}, {Key: "update", Value: sent[0].Lookup("update")}}
				require.NoError(t, f.coll.Database().RunCommand(f.ctx(), again).Err())
			}
		}
		return testserver.Fate{}
	})
	_, err := f.store.Acquire(f.ctx(), exclusiveClaim("k", time.Minute))
	require.NotZero(t, swaps, "no compare-and-swap: this shows nothing")
	require.ErrorIs(t, err, store.ErrHeld)
	_, holds := f.document("k").Has(joined.ID)
	assert.True(t, holds, "the reader that joined was dropped")
}
