package mongostore

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

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
	_, holds := f.document("k").Holder(joined.ID)
	assert.True(t, holds, "the reader that joined was dropped")
}
