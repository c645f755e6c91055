package doclock

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
)

// A router before MongoDB 7.1 refuses a write to one document that does not name its shard key. A
// document that is asked for by other fields is looked for first.
func TestBehindARouterEveryWriteNamesTheDocumentByItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &replicaSet{docset.NewSharded(func(id string) int { return len(id) % 2 }, 0, 0)}
		coll := set.collection(t)
		put(t, coll, order{ID: "a", State: "new"}, order{ID: "bb", State: "ready"})
		locks, others := locksOn[order](t, coll), locksOn[order](t, set.collection(t))
		doc := must(locks.TryAcquire(t.Context(), bson.D{{Key: "state", Value: "ready"}}))(t)
		assert.Equal(t, "bb", doc.Value.ID)
		_, err := others.TryAcquire(t.Context(), bson.D{{Key: "state", Value: "ready"}})
		require.ErrorIs(t, err, mongolock.ErrHeld)
		require.NoError(t, doc.Save(t.Context()))
		require.NoError(t, doc.Lease().Renew(t.Context()))
		require.NoError(t, doc.Release())
		claimed := must(others.TryClaim(t.Context(), ready, nil))(t)
		require.NoError(t, claimed.Complete(t.Context()))
		require.NoError(t, locks.Close())
		require.NoError(t, others.Close())
	})
}
