package system

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
)

// blocked keeps a key's document in an open transaction until free is called.
func (f *fixture) blocked(key string) (free func()) {
	f.t.Helper()
	conn := f.connect(f.uri)
	session, err := conn.StartSession()
	require.NoError(f.t, err)
	require.NoError(f.t, session.StartTransaction())
	coll := conn.Database(f.coll.Database().Name()).Collection(f.coll.Name())
	for { // the key's own renewal may be under way
		done, err := coll.UpdateByID(mongo.NewSessionContext(f.ctx(), session), key, bson.D{{Key: "$set", Value: bson.D{{Key: "blocked", Value: true}}}})
		if err == nil {
			require.EqualValues(f.t, 1, done.MatchedCount)
			break
		}
		_ = session.AbortTransaction(f.ctx())
		require.NoError(f.t, f.ctx().Err())
		require.NoError(f.t, session.StartTransaction())
	}
	once := false
	free = func() {
		if !once {
			once = true
			_ = session.AbortTransaction(context.Background())
			session.EndSession(context.Background())
		}
	}
	f.t.Cleanup(free)
	return free
}

func TestATransactionThatBlocksOneKeyLosesNoOtherLease(t *testing.T) {
	t.Parallel()
	f := newFixtureApart(t, "transactions", "atomic")
	ttl := pace.Of(4 * time.Second)
	c := f.client(mongolock.TTL(ttl), mongolock.WithMargin(100*time.Millisecond))
	leases := f.acquireMany(c, 20)
	free := f.blocked("key-7")
	for until := time.Now().Add(ttl * 9 / 4); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		for _, l := range leases {
			if l.Key() != "key-7" {
				require.NoError(t, l.Err(), "%q", l.Key())
			}
		}
	}
	assert.ErrorIs(t, leases[7].Err(), mongolock.ErrLost, "blocked for two TTLs: otherwise nothing was blocked")
	free()
	require.NoError(t, c.Close())
}

func TestCloseFreesTheOtherKeysWhileATransactionBlocksOne(t *testing.T) {
	t.Parallel()
	f := newFixtureApart(t, "transactions", "atomic")
	c := f.client(mongolock.TTL(30*time.Second), mongolock.WithMargin(100*time.Millisecond))
	f.acquireMany(c, 40)
	free := f.blocked("key-7")
	err := c.Close()
	free()
	require.ErrorContains(t, err, `"key-7"`)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	assert.Len(t, joined.Unwrap(), 1, "%v", err)
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{})
	require.NoError(t, err)
	assert.LessOrEqual(t, n, int64(1), "documents: that of the blocked key at most")
	_, err = f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "key-7"}})
	require.NoError(t, err)
}
