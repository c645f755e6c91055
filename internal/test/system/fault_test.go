package system

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// mustBeUnknown fails unless err says that the outcome of a claim is unknown, and no lease
// came with it.
func mustBeUnknown(t *testing.T, l *mongolock.Lease, err error) {
	t.Helper()
	require.Nil(t, l, "answered %v, %v: neither granted nor unknown", l, err)
	require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown, "neither granted nor unknown")
	require.NotErrorIs(t, err, mongolock.ErrHeld, "neither granted nor unknown")
}

func TestAnUnreadableReplyToAClaimIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(time.Second))
	for i, odd := range []bson.D{
		{{Key: "ok", Value: 1}, {Key: "value", Value: bson.D{}}},
		{{Key: "ok", Value: 1}, {Key: "value", Value: bson.D{{Key: fieldVersion, Value: 1}}}},
		{{Key: "ok", Value: 0}},
		{},
	} {
		key := fmt.Sprint("k", i)
		rule := f.on(proxy, claimCommands, faultproxy.EditReply(func(bson.D) bson.D { return slices.Clone(odd) }))
		l, err := c.TryAcquire(f.ctx(), key)
		mustBeUnknown(t, l, err)
		rule.Remove()
		f.mustBeGone(key, time.Now().Add(time.Second))
	}
}

// A reply to an upsert without a document says nothing about its outcome.
func TestAClaimAnsweredWithoutADocumentIsConfirmed(t *testing.T) {
	t.Parallel()
	withoutValue := func(reply bson.D) bson.D { // the rest stays, its operationTime too
		return slices.DeleteFunc(reply, func(e bson.E) bool { return e.Key == "value" })
	}
	for name, edit := range map[string]func(bson.D) bson.D{
		"null":    func(reply bson.D) bson.D { return append(withoutValue(reply), bson.E{Key: "value", Value: nil}) },
		"nothing": withoutValue,
		"no time": func(bson.D) bson.D { return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: nil}} },
	} {
		for _, opts := range [][]mongolock.AcquireOption{nil, {mongolock.Shared()}} {
			t.Run(fmt.Sprint(name, len(opts)), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				c, proxy := f.behind(withRetries, mongolock.TTL(pace.Of(5*time.Second)))
				first := f.acquire(c, "k")
				f.release(first)
				confirms := f.on(proxy, confirmCommands, faultproxy.DelayCommand(0))
				f.on(proxy, claimCommands.Nth(1), faultproxy.EditReply(edit))
				l := f.acquire(c, "k", opts...)
				require.Equal(t, 1, confirms.Hits(), "confirmations")
				assert.Greater(t, l.Token(), first.Token(), "the token rises")
				f.mustHold(l)
				f.release(l)
				f.mustBeAbsent("k")
			})
		}
	}
}

func TestAClaimAnsweredWithoutADocumentThatCannotBeConfirmedIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries)
	f.on(proxy, claimCommands, faultproxy.EditReply(func(bson.D) bson.D {
		_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}})
		assert.NoError(t, err)
		return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: nil}}
	}))
	l, err := c.TryAcquire(f.ctx(), "k")
	mustBeUnknown(t, l, err)
	f.mustBeAbsent("k")
}
