package doclock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// putOff is a document as Requeue leaves it.
func putOff(id string, until time.Time) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "state", Value: "ready"}, {Key: "lock", Value: bson.D{
		{Key: "doclock", Value: 1}, {Key: "expireAt", Value: bson.DateTime(0)}, {Key: "attempts", Value: 1}, {Key: "readyAt", Value: until}}}}
}

// A find with the sort cannot skip what is put off: so an idle worker asks without it first.
func TestAnIdleWorkerLooksInTheOrderOfItsSortOnlyIfThereIsSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := newReplicaSet(0).collection(t)
		locks := locksOn[order](t, coll)
		require.NoError(t, locks.EnsureClaimIndex(t.Context(), ready, oldest))
		_, err := locks.TryClaim(t.Context(), ready, oldest)
		require.ErrorIs(t, err, ErrNoWork)
		p := must(locks.pool(t.Context(), ready, oldest, nil))(t)
		now := locks.store.base.Present()
		put(t, coll, putOff("later", now.Add(time.Hour)))
		assert.False(t, must(p.anything(t.Context(), now))(t))
		put(t, coll, putOff("due", now.Add(time.Minute)))
		assert.True(t, must(p.anything(t.Context(), now.Add(2*time.Minute)))(t))
		put(t, coll, order{ID: "new", State: "ready"})
		assert.Equal(t, "new", must(locks.TryClaim(t.Context(), ready, oldest))(t).Value.ID)
		require.NoError(t, locks.Close())
	})
}

func TestAnIdleWorkerExaminesAHandfulBesideWhatIsPutOff(t *testing.T) {
	needs(t, "mongodb") // which tells what a find has examined
	coll := collection(t)
	locks := locksOn[order](t, coll)
	order := bson.D{{Key: "state", Value: 1}, {Key: "_id", Value: 1}}
	require.NoError(t, locks.EnsureClaimIndex(t.Context(), ready, order))
	for batch := range 20 {
		docs := make([]any, 1000)
		for i := range docs {
			docs[i] = putOff(fmt.Sprint(batch, "-", i), time.Now().Add(time.Hour))
		}
		put(t, coll, docs...)
	}
	filter, err := marshal(ready)
	require.NoError(t, err)
	now := time.Now()
	for name, find := range map[string]bson.D{"work": locks.store.claimableOf(filter, now, now), "foreign locks": locks.store.foreignOf(filter, now)} {
		told, err := coll.Database().RunCommand(t.Context(), bson.D{
			{Key: "explain", Value: bson.D{{Key: "find", Value: coll.Name()}, {Key: "filter", Value: find}, {Key: "limit", Value: 1}}},
			{Key: "verbosity", Value: "executionStats"},
		}).Raw()
		require.NoError(t, err)
		for _, what := range []string{"totalKeysExamined", "totalDocsExamined"} {
			n, ok := told.Lookup("executionStats", what).AsInt64OK()
			assert.True(t, ok && n <= 100, "the look for %s: %s is %d", name, what, n)
		}
	}
}
