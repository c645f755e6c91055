package doclock

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/faultproxy"
)

// transfers put the next holder in the place of the one they name.
var transfers = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool {
	return has(c, "query", "lock.id") && has(c, "update", "$set", "lock.id")
})

// interrupted is a refusal that proves nothing, and after which the driver does not
// look for another server.
const interrupted = 11601

// waits tells when somebody has begun to wait.
type waits chan struct{}

func (w waits) Begin(ctx context.Context, op mongolock.Op, _ string) (context.Context, func(mongolock.Outcome)) {
	if op == mongolock.OpWait {
		w <- struct{}{}
	}
	return ctx, func(mongolock.Outcome) {}
}

// handedOver has a document saved and handed to a waiter of the same process, by a
// command that suffers a fault, and answers what the waiter got in the end. Of the
// clean-up and the repeated release the later is refused until the first was applied.
func handedOver(t *testing.T, r room, waiting waits, fault faultproxy.Action, first, later faultproxy.Matcher) (rule *faultproxy.Rule, next *Document[order]) {
	t.Helper()
	doc := must(r.Acquire(t.Context(), ID("o")))(t)
	got := make(chan *Document[order], 1)
	go func() {
		d, err := r.Acquire(t.Context(), ID("o"))
		if err != nil {
			t.Error(err)
		}
		got <- d
	}()
	<-waiting
	rule = r.proxy.On(transfers.Nth(1), fault)
	begun := r.proxy.On(first.Nth(1), faultproxy.DelayReply(0))
	r.proxy.On(later.Where(func(bson.Raw) bool {
		select {
		case <-begun.Applied():
			return false
		default:
			return true
		}
	}), faultproxy.Fail(interrupted))
	doc.Value.State = "paid"
	unknown(t, doc.SaveAndRelease(t.Context()))
	if rule.Hits() != 1 {
		t.Fatal("nothing was lost: the test shows nothing")
	}
	select {
	case next = <-got:
	case <-time.After(10 * time.Second): // a lease has 30 s: it is not its end that did it
		t.Fatal("the waiter does not get it")
	}
	if next == nil {
		t.FailNow()
	}
	t.Cleanup(func() { _ = next.Release() })
	if next.Lease().Token() <= doc.Lease().Token() {
		t.Errorf("token %d after %d", next.Lease().Token(), doc.Lease().Token())
	}
	return rule, next
}

func waitingRoom(t *testing.T) (room, waits) {
	waiting := make(waits, 1)
	return newRoom(t, false, 30*time.Second, With(mongolock.WithObserver(waiting))), waiting
}

// The hand-over is undone, as nobody knows its token. What was to be saved with it is
// saved, be it by the clean-up or by the release that is repeated, and the waiter
// asks once more.
func TestAHandOverWhoseAnswerIsLostIsUndoneAndItsSaveIsNot(t *testing.T) {
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
			r, waiting := waitingRoom(t)
			if _, next := handedOver(t, r, waiting, how.fault, how.first, how.later); next.Value.State != "paid" {
				t.Errorf("the waiter got it with the state %q", next.Value.State)
			}
		})
	}
}

func TestAHandOverThatIsAppliedLateTouchesNothing(t *testing.T) {
	t.Parallel()
	r, waiting := waitingRoom(t)
	stuck, next := handedOver(t, r, waiting, faultproxy.Orphan(), cleanUps, ends)
	if next.Value.State != "paid" {
		t.Errorf("the waiter got it with the state %q", next.Value.State)
	}
	next.Value.State = "sent"
	if err := next.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	direct := r.straight(t)
	before := look(t, direct)
	stuck.Release()
	select {
	case <-stuck.Applied():
	case <-time.After(10 * time.Second):
		t.Fatal("the late hand-over did not arrive")
	}
	if after := look(t, direct); !bytes.Equal(before, after) {
		t.Errorf("it was\n%v\nand is\n%v", before, after)
	}
	if err := next.SaveAndRelease(t.Context()); err != nil {
		t.Error(err)
	}
}

// The control: a clean-up that only takes the holder out loses what was to be saved.
func TestControlACleanUpOfAHandOverThatSavesNothingLosesTheValue(t *testing.T) {
	t.Parallel()
	r, waiting := waitingRoom(t)
	r.store.broken.dropSave = true
	if _, next := handedOver(t, r, waiting, faultproxy.DropCommand(), cleanUps, ends); next.Value.State != "new" {
		t.Errorf("saved all the same: %q", next.Value.State)
	}
}

// A broken holder is declared dead: its clean-up frees the document and saves nothing.
func TestWhoWasBrokenSavesNothingByTheCleanUpOfItsHandOver(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	if err := locks.store.Break(t.Context(), doc.ref(), "because", false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = doc.Release() })
	doc.Value.State = "late"
	c, _, err := doc.changes()
	if err != nil {
		t.Fatal(err)
	}
	locks.store.end(doc.lease.ID(), &ending{changes: c})
	from := doc.ref()
	claim := from
	claim.ID = "NEVER-SENT"
	if settled, err := locks.store.Undo(t.Context(), claim, &from); err != nil || !settled {
		t.Errorf("settled %v, %v", settled, err)
	}
	if raw := get(t, coll, "o"); !isFreeWith(raw, "new") {
		t.Errorf("it is %v", raw)
	}
}

// Announce is a hint. When it fails it says so, and whoever waits finds out alone;
// when it comes twice, or late, there is nothing to be had a second time.
func TestAnAnnouncementThatIsLostCostsTimeAndNothingElse(t *testing.T) {
	t.Parallel()
	needs(t, "capped", "atomic")
	for how, fault := range map[string]faultproxy.Action{
		"applied": faultproxy.DropReply(), "not applied": faultproxy.DropCommand(), "late": faultproxy.Orphan(),
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, false, 30*time.Second)
			direct := r.straight(t)
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
			isHeard(t, direct)
			rule := r.proxy.On(faultproxy.Command("insert").Nth(1), fault)
			put(t, direct, order{ID: "ready", State: "ready"})
			if err := r.Announce(t.Context()); err == nil || errors.Is(err, ErrNoWork) {
				t.Errorf("Announce says %v", err)
			}
			if rule.Hits() != 1 {
				t.Fatal("nothing was lost: the test shows nothing")
			}
			if err := <-claimed; err != nil {
				t.Fatal(err)
			}
			rule.Release()
			cancel()
			if err := <-claimed; !errors.Is(err, context.Canceled) {
				t.Errorf("the other: %v", err)
			}
		})
	}
}

// isHeard waits until somebody has made the collection of wake-ups, to listen there.
func isHeard(t *testing.T, coll *mongo.Collection) {
	t.Helper()
	for give := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		specs, err := coll.Database().ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: coll.Name() + ".wake"}})
		if err != nil || time.Now().After(give) {
			t.Fatalf("nobody listens: %v", err)
		}
		if len(specs) == 1 {
			return
		}
	}
}
