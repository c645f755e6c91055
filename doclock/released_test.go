package doclock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
)

// endings are the calls that end a claim.
var endings = map[string]func(*Claimed[bson.M], context.Context) error{
	"Complete":           (*Claimed[bson.M]).Complete,
	"Remove":             (*Claimed[bson.M]).Remove,
	"Requeue":            func(c *Claimed[bson.M], ctx context.Context) error { return c.Requeue(ctx, time.Minute) },
	"Requeue before now": func(c *Claimed[bson.M], ctx context.Context) error { return c.Requeue(ctx, -1) },
	"Requeue for longer than a year": func(c *Claimed[bson.M], ctx context.Context) error {
		return c.Requeue(ctx, 366*24*time.Hour)
	},
}

// claimOne has a document that is claimed by the first of two processes.
func claimOne(t *testing.T) (msg *Claimed[bson.M], other *Locks[bson.M]) {
	s := newReplicaSet(0)
	coll := s.collection(t)
	put(t, coll, bson.M{"_id": "m", "state": "ready"})
	msg, err := locksOn[bson.M](t, coll).TryClaim(t.Context(), ready, nil)
	require.NoError(t, err)
	return msg, locksOn[bson.M](t, s.collection(t))
}

func isFreeAndUnchanged(t *testing.T, other *Locks[bson.M], name string) {
	t.Helper()
	next, err := other.TryClaim(t.Context(), ready, nil)
	require.NoError(t, err, "after %s the document is held for as long as the process lives", name)
	assert.Equal(t, "ready", next.Value["state"])
	require.NoError(t, next.Release())
}

func TestAnEndingWhoseContextHasEndedReleasesTheDocument(t *testing.T) {
	for name, end := range endings {
		synctest.Test(t, func(t *testing.T) {
			msg, other := claimOne(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			msg.Value["state"] = "sent"
			assert.Error(t, end(msg, ctx), name)
			assert.ErrorIs(t, msg.Lease().Err(), mongolock.ErrReleased, name)
			isFreeAndUnchanged(t, other, name)
		})
	}
}

func TestAnEndingWhoseValueCannotBeEncodedReleasesTheDocument(t *testing.T) {
	for name, end := range endings {
		synctest.Test(t, func(t *testing.T) {
			msg, other := claimOne(t)
			msg.Value["a.b"] = 1
			err := end(msg, t.Context())
			if name == "Remove" {
				assert.NoError(t, err, "it saves nothing")
				return
			}
			assert.Error(t, err, name)
			isFreeAndUnchanged(t, other, name)
		})
	}
}

func TestASaveAndReleaseThatCannotBeginReleasesTheDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		msg, other := claimOne(t)
		require.NoError(t, msg.Release())
		mine := msg.doc.locks
		doc, err := mine.TryAcquire(t.Context(), ID("m"))
		require.NoError(t, err)
		doc.Value["a.b"] = 1
		assert.ErrorContains(t, doc.Save(t.Context()), `"a.b"`)
		assert.NoError(t, doc.Lease().Err(), "Save keeps the lock")
		assert.ErrorContains(t, doc.SaveAndRelease(t.Context()), `"a.b"`)
		isFreeAndUnchanged(t, other, "SaveAndRelease")

		doc, err = mine.TryAcquire(t.Context(), ID("m"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, doc.SaveAndRelease(ctx), context.Canceled)
		isFreeAndUnchanged(t, other, "SaveAndRelease")
	})
}

// The caller may abort the transaction and begin it again, under the same lease.
func TestAnEndingThatFailsInATransactionKeepsTheDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		msg, other := claimOne(t)
		session, err := msg.doc.locks.store.base.Soft.Database().Client().StartSession()
		require.NoError(t, err)
		defer session.EndSession(t.Context())
		require.NoError(t, session.StartTransaction())
		msg.Value["a.b"] = 1
		assert.Error(t, msg.Complete(mongo.NewSessionContext(t.Context(), session)))
		assert.NoError(t, msg.Lease().Err())
		_, err = other.TryClaim(t.Context(), ready, nil)
		assert.ErrorIs(t, err, ErrNoWork)
		require.NoError(t, session.AbortTransaction(t.Context()))
		require.NoError(t, msg.Release())
	})
}
