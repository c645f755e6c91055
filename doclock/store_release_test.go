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

	"github.com/mongolock/mongolock"
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

// transfers put the next holder in the place of the one that they name.
var transfers = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool {
	return has(c, "query", "lock.id") && has(c, "update", "$set", "lock.id")
})

// interrupted is an error code that leaves the outcome open, and after which the driver
// does not look for another server.
const interrupted = 11601

// A waits is an observer that tells when a waiter begins to wait.
type waits chan struct{}

func (w waits) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	if of.Op == mongolock.OpWait {
		w <- struct{}{}
	}
	return ctx, func(mongolock.Outcome) {}
}

// handedOver has a document saved and handed to a waiter of the same process, by a
// command that suffers a fault, and returns what the waiter got in the end. Of the
// clean-up and the repeated release the later one is refused until the first was applied.
func handedOver(t *testing.T, f faulty, waiting waits, fault faultproxy.Action, first, later faultproxy.Matcher) (rule *faultproxy.Rule, next *Document[order]) {
	t.Helper()
	doc := must(f.Acquire(t.Context(), ID("o")))(t)
	got := make(chan *Document[order], 1)
	go func() {
		d, err := f.Acquire(t.Context(), ID("o"))
		assert.NoError(t, err, "the waiter")
		got <- d
	}()
	<-waiting
	rule = f.proxy.On(transfers.Nth(1), fault)
	begun := f.proxy.On(first.Nth(1), faultproxy.DelayReply(0))
	f.proxy.On(later.Where(func(bson.Raw) bool {
		select {
		case <-begun.Applied():
			return false
		default:
			return true
		}
	}), faultproxy.Fail(interrupted))
	doc.Value.State = "paid"
	unknown(t, doc.SaveAndRelease(t.Context()))
	oneHit(t, rule)
	select {
	case next = <-got:
	case <-time.After(min(pace.Of(10*time.Second), 20*time.Second)): // the lease has 30 s: its end does not help
		require.FailNow(t, "the waiter does not get the document")
	}
	require.NotNil(t, next)
	t.Cleanup(func() { _ = next.Release() })
	assert.Greater(t, next.Lease().Token(), doc.Lease().Token())
	return rule, next
}

func observedBehindProxy(t *testing.T) (faulty, waits) {
	waiting := make(waits, 1)
	return behindProxy(t, false, 30*time.Second, WithObserver(waiting)), waiting
}

// The hand-over is undone, because its token is lost with the reply. The clean-up or the
// repeated release saves what was to be saved with it, and the waiter asks again.
func TestAHandOverWhoseReplyIsLostIsUndoneButItsSaveIsKept(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		fault        faultproxy.Action
		first, later faultproxy.Matcher
	}{
		"applied":                         {faultproxy.DropReply(), cleanUps, ends},
		"not applied, the clean-up first": {faultproxy.DropCommand(), cleanUps, ends},
		"not applied, the release first":  {faultproxy.DropCommand(), ends, cleanUps},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, waiting := observedBehindProxy(t)
			_, next := handedOver(t, f, waiting, how.fault, how.first, how.later)
			assert.Equal(t, "paid", next.Value.State, "the state that the waiter got")
		})
	}
}

func TestAHandOverAppliedLateChangesNothing(t *testing.T) {
	t.Parallel()
	f, waiting := observedBehindProxy(t)
	stuck, next := handedOver(t, f, waiting, faultproxy.Orphan(), cleanUps, ends)
	assert.Equal(t, "paid", next.Value.State, "the state that the waiter got")
	next.Value.State = "sent"
	require.NoError(t, next.Save(t.Context()))
	direct := f.direct(t)
	before := look(t, direct)
	stuck.Release()
	applied(t, stuck, 10*time.Second)
	assert.Equal(t, before, look(t, direct))
	assert.NoError(t, next.SaveAndRelease(t.Context()))
}

func TestABrokenHolderSavesNothingWhenItsHandOverIsCleanedUp(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	require.NoError(t, locks.store.Break(t.Context(), doc.ref(), "because", false))
	t.Cleanup(func() { _ = doc.Release() })
	doc.Value.State = "late"
	c, _, err := doc.changes()
	require.NoError(t, err)
	locks.store.end(doc.lease.ID(), &ending{changes: c})
	from := doc.ref()
	claim := from
	claim.ID = "NEVER-SENT"
	settled, err := locks.store.Undo(t.Context(), claim, &from)
	require.NoError(t, err)
	assert.True(t, settled)
	assert.True(t, isFreeWith(get(t, coll, "o"), "new"), "the document is %v", get(t, coll, "o"))
}

// Announce is a hint. If it fails it says so, and waiters find the document alone. If it
// arrives twice or late, no waiter gets a document that does not exist.
func TestALostAnnouncementCostsOnlyTime(t *testing.T) {
	t.Parallel()
	needs(t, "capped", "atomic")
	for how, fault := range map[string]faultproxy.Action{
		"applied": faultproxy.DropReply(), "not applied": faultproxy.DropCommand(), "late": faultproxy.Orphan(),
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := behindProxy(t, false, 30*time.Second)
			direct := f.direct(t)
			locks := locksOn[order](t, direct)
			claimed := make(chan error, 2)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 2 { // for one document
				go func() {
					c, err := locks.Claim(ctx, bson.D{{Key: "state", Value: "ready"}}, nil)
					if err == nil {
						err = c.Complete(t.Context())
					}
					claimed <- err
				}()
			}
			feedIsMade(t, direct)
			rule := f.proxy.On(faultproxy.Command("insert").Nth(1), fault)
			put(t, direct, order{ID: "ready", State: "ready"})
			err := f.Announce(t.Context())
			assert.Error(t, err, "Announce")
			assert.NotErrorIs(t, err, ErrNoWork, "Announce")
			oneHit(t, rule)
			require.NoError(t, <-claimed)
			rule.Release()
			cancel()
			assert.ErrorIs(t, <-claimed, context.Canceled, "the other one")
		})
	}
}

// feedIsMade waits until a listener has made the collection of wake-ups.
func feedIsMade(t *testing.T, coll *mongo.Collection) {
	t.Helper()
	require.Eventually(t, func() bool {
		specs, err := coll.Database().ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: coll.Name() + ".wake"}})
		return assert.NoError(t, err) && len(specs) == 1
	}, 10*time.Second, 5*time.Millisecond, "nobody listens")
}
