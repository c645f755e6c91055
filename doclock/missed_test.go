package doclock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// lockedBy is a document whose lock an operator has written by hand.
func lockedBy(id string, lock ...bson.E) bson.D {
	lock = append(bson.D{{Key: "doclock", Value: 1}, {Key: "expireAt", Value: bson.DateTime(0)}}, lock...)
	return bson.D{{Key: "_id", Value: id}, {Key: "state", Value: "ready"}, {Key: "lock", Value: bson.D(lock)}}
}

// claimsSent is how many claims were sent since the last call.
func (s *replicaSet) claimsSent() int {
	return len(slices.DeleteFunc(s.Take(), func(name string) bool { return name != "findAndModify" }))
}

func TestAClaimPassesOverALockWhoseIDIsNoText(t *testing.T) {
	for _, id := range []any{nil, 5, "", bson.D{}, bson.A{}, bson.A{"x"}} {
		synctest.Test(t, func(t *testing.T) {
			set := newReplicaSet(0)
			coll := set.collection(t)
			put(t, coll, lockedBy("by hand", bson.E{Key: "id", Value: id}))
			locks := locksOn[order](t, coll)
			_, err := locks.TryClaim(t.Context(), ready, nil)
			assert.ErrorIs(t, err, ErrNoWork, "%v", id)
			if _, is := id.(bson.A); !is || len(id.(bson.A)) == 0 {
				assert.ErrorIs(t, err, mongolock.ErrForeign, "%v", id)
			}
			assert.Zero(t, set.claimsSent(), "%v", id)
			_, err = locks.TryAcquire(t.Context(), ID("by hand"))
			assert.ErrorIs(t, err, mongolock.ErrForeign, "%v", id)
			require.NoError(t, locks.Close())
		})
	}
}

// disagreeing has the looks of stores show documents that their claims never get.
func disagreeing(s *replicaSet) {
	s.Before(func(c docdb.Command) {
		for _, e := range c.Body {
			filter, _ := e.Value.(bson.D)
			for i, f := range filter {
				if c.Name == "findAndModify" && e.Key == "query" && f.Key == "_id" && f.Value != "good" {
					filter[i].Value = "nowhere"
				}
			}
		}
	})
}

func TestAClaimEndsAlthoughEveryLookShowsADocumentThatNoClaimGets(t *testing.T) {
	for _, n := range []int{1, 500} {
		synctest.Test(t, func(t *testing.T) {
			set := newReplicaSet(0)
			coll := set.collection(t)
			for range n {
				put(t, coll, bson.D{{Key: "state", Value: "ready"}})
			}
			locks := locksOn[order](t, coll)
			disagreeing(set)
			_, err := locks.TryClaim(t.Context(), ready, nil)
			assert.ErrorIs(t, err, ErrNoWork)
			assert.LessOrEqual(t, set.claimsSent(), maxMiss, "of %d documents", n)
			require.NoError(t, locks.Close())
		})
	}
}

// It costs a few commands a minute, and keeps no worker from the documents behind it.
func TestADocumentThatNoClaimGetsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newReplicaSet(0)
		coll := set.collection(t)
		put(t, coll, order{ID: "a bad one", State: "ready"})
		locks := locksOn[order](t, coll)
		disagreeing(set)
		for range 20 {
			_, err := locks.TryClaim(t.Context(), ready, bson.D{{Key: "_id", Value: 1}})
			assert.ErrorIs(t, err, ErrNoWork)
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, set.claimsSent(), badAfter)
		put(t, coll, order{ID: "good", State: "ready"})
		claimed, err := locks.Claim(t.Context(), ready, bson.D{{Key: "_id", Value: 1}})
		require.NoError(t, err)
		assert.Equal(t, "good", claimed.Value.ID)
		require.NoError(t, locks.Close())
	})
}

func TestADocumentThatIsMarkedAsNotDoneIsClaimed(t *testing.T) {
	for _, mark := range []any{false, nil} {
		synctest.Test(t, func(t *testing.T) {
			set := newReplicaSet(0)
			coll := set.collection(t)
			put(t, coll, lockedBy("not done", bson.E{Key: "done", Value: mark}), lockedBy("done", bson.E{Key: "done", Value: true}))
			locks := locksOn[order](t, coll)
			claimed, err := locks.TryClaim(t.Context(), ready, nil)
			require.NoError(t, err, "%v", mark)
			assert.Equal(t, "not done", claimed.Value.ID)
			_, err = locks.TryClaim(t.Context(), ready, nil)
			require.ErrorIs(t, err, ErrNoWork)
			require.NoError(t, claimed.Release())
			reopened, err := locks.Reopen(t.Context(), bson.D{})
			require.NoError(t, err)
			assert.Equal(t, 1, reopened, "the one that was done")
			require.NoError(t, locks.Close())
		})
	}
}
