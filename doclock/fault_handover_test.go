package doclock

import (
	"context"
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
