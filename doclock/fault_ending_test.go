package doclock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// ends are the commands that end a lease, whatever else they write. Clean-ups are not
// among them.
var ends = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool {
	_, cleanUp := c.Lookup("query", "lock.id").DocumentOK()
	return !cleanUp && (has(c, "remove") || has(c, "update", "$unset", "lock") || has(c, "update", "$unset", "lock.id"))
})

// A wayToEnd is one way to end a claim, and how the document then looks.
type wayToEnd struct {
	call func(context.Context, *Claimed[order]) error
	done func(raw bson.Raw) bool // raw: nil if there is no such document
}

var waysToEnd = map[string]wayToEnd{
	"SaveAndRelease": {
		func(ctx context.Context, c *Claimed[order]) error {
			return c.finish(ctx, "save and release", &ending{})
		},
		func(raw bson.Raw) bool { return isFreeWith(raw, "paid") && !readLock(raw, "lock").done },
	},
	"Complete": {
		func(ctx context.Context, c *Claimed[order]) error { return c.Complete(ctx) },
		func(raw bson.Raw) bool { return isFreeWith(raw, "paid") && readLock(raw, "lock").done },
	},
	"Requeue": {
		func(ctx context.Context, c *Claimed[order]) error { return c.Requeue(ctx, time.Hour) },
		func(raw bson.Raw) bool {
			return isFreeWith(raw, "paid") && time.Until(readLock(raw, "lock").readyAt) > 55*time.Minute
		},
	},
	"Remove": {
		func(ctx context.Context, c *Claimed[order]) error { return c.Remove(ctx) },
		func(raw bson.Raw) bool { return raw == nil },
	},
}

func isFreeWith(raw bson.Raw, state string) bool {
	return raw != nil && readLock(raw, "lock").holder().ID == "" && raw.Lookup("state").StringValue() == state
}

// look reads the document. It returns nil if there is no document.
func look(t *testing.T, coll *mongo.Collection) bson.Raw {
	t.Helper()
	raw, err := coll.FindOne(t.Context(), ID("o")).Raw()
	if !errors.Is(err, mongo.ErrNoDocuments) {
		assert.NoError(t, err)
	}
	return raw
}

// end claims the document and ends the claim, whose first command suffers a fault. It
// waits until the ending has taken effect all the same.
func (f faulty) end(t *testing.T, way wayToEnd, fault faultproxy.Action, direct *mongo.Collection) *faultproxy.Rule {
	t.Helper()
	c := must(f.TryClaim(t.Context(), bson.D{{Key: "state", Value: "new"}}, nil))(t)
	rule := f.proxy.On(ends.Nth(1), fault)
	c.Value.State = "paid"
	unknown(t, way.call(t.Context(), c))
	oneHit(t, rule)
	require.Eventually(t, func() bool { return way.done(look(t, direct)) }, min(pace.Of(5*time.Second), 20*time.Second), 5*time.Millisecond,
		"not finished in the background") // and not by the end of the lease, which has 30 s
	assert.Error(t, way.call(t.Context(), c), "a claim must not be ended twice")
	return rule
}

// The ending takes effect, and once, whether the server applied it or never saw it.
func TestAnEndingWhoseReplyIsLostIsFinishedInTheBackground(t *testing.T) {
	t.Parallel()
	for name, way := range waysToEnd {
		for how, fault := range map[string]faultproxy.Action{
			"applied": faultproxy.DropReply(), "not applied": faultproxy.DropCommand(),
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				f := behindProxy(t, false, 30*time.Second)
				f.end(t, way, fault, f.direct(t))
				_, err := f.TryClaim(t.Context(), bson.D{{Key: "state", Value: "new"}}, nil)
				assert.ErrorIs(t, err, ErrNoWork, "claimed again")
			})
		}
	}
}

// lateEnd has an ending arrive long after it was repeated, when another process has put
// the document back and claimed it. It returns the document before and after.
func (f faulty) lateEnd(t *testing.T, way wayToEnd) (before, after bson.Raw) {
	t.Helper()
	direct := f.direct(t)
	stuck := f.end(t, way, faultproxy.Orphan(), direct)
	_, err := direct.DeleteOne(t.Context(), ID("o"))
	require.NoError(t, err)
	put(t, direct, order{ID: "o", State: "put back"})
	other := must(locksOn[order](t, direct).TryClaim(t.Context(), bson.D{}, nil))(t)
	t.Cleanup(func() { _ = other.Release() })
	before = look(t, direct)
	stuck.Release()
	applied(t, stuck, 10*time.Second)
	return before, look(t, direct)
}

func TestAnEndingAppliedLateChangesNoOtherClaim(t *testing.T) {
	t.Parallel()
	for name, way := range waysToEnd {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := behindProxy(t, false, 30*time.Second).lateEnd(t, way)
			assert.Equal(t, before, after)
		})
	}
}

// lateSave has a save arrive after the next save of the same holder, and returns the
// state that the document then has.
func lateSave(t *testing.T, anyOrder bool) (state string) {
	f := behindProxy(t, false, 30*time.Second)
	if anyOrder {
		f.store.tamper(savesInAnyOrder)
	}
	doc := must(f.Acquire(t.Context(), ID("o")))(t)
	stuck := f.proxy.On(saves.Nth(1), faultproxy.Orphan())
	doc.Value.State = "first"
	unknown(t, doc.Save(t.Context()))
	doc.Value.State = "second"
	require.NoError(t, doc.Save(t.Context()))
	stuck.Release()
	applied(t, stuck, 10*time.Second)
	raw := look(t, f.direct(t))
	assert.Equal(t, doc.Lease().ID(), readLock(raw, "lock").holder().ID, "the holder")
	assert.NoError(t, doc.SaveAndRelease(t.Context()))
	return raw.Lookup("state").StringValue()
}

func TestASaveAppliedLateDoesNotUndoTheNextOne(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "second", lateSave(t, false))
}
