package doclock

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/faultproxy"
)

// ends are the commands that end a lease, whatever they write besides; clean-ups are not.
var ends = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool {
	_, cleanUp := c.Lookup("query", "lock.id").DocumentOK()
	return !cleanUp && (has(c, "remove") || has(c, "update", "$unset", "lock") || has(c, "update", "$unset", "lock.id"))
})

// An end is one way to end a claim with its value, and what the database then has.
type end struct {
	call func(context.Context, *Claimed[order]) error
	done func(raw bson.Raw) bool // raw: nil if there is no such document
}

var allEnds = map[string]end{
	"SaveAndRelease": {
		func(ctx context.Context, c *Claimed[order]) error { return c.SaveAndRelease(ctx) },
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
	return raw != nil && readLock(raw, "lock").id == "" && raw.Lookup("state").StringValue() == state
}

// straight is the room's collection, not through the proxy.
func (r room) straight(t *testing.T) *mongo.Collection {
	t.Helper()
	return again(t, r.store.base.Soft, os.Getenv("MONGODB_URI"))
}

// look reads the document; nil if there is none.
func look(t *testing.T, coll *mongo.Collection) bson.Raw {
	t.Helper()
	raw, err := coll.FindOne(t.Context(), ID("o")).Raw()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		t.Fatal(err)
	}
	return raw
}

// ended claims the document, has the first command of its end suffer a fault, and
// waits until what was said is done all the same.
func (r room) ended(t *testing.T, e end, fault faultproxy.Action, direct *mongo.Collection) *faultproxy.Rule {
	t.Helper()
	c := must(r.TryClaim(t.Context(), bson.D{{Key: "state", Value: "new"}}, nil))(t)
	rule := r.proxy.On(ends.Nth(1), fault)
	c.Value.State = "paid"
	unknown(t, e.call(t.Context(), c))
	if rule.Hits() != 1 {
		t.Fatal("nothing was lost: the test shows nothing")
	}
	for give := time.Now().Add(5 * time.Second); !e.done(look(t, direct)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(give) { // a lease has 30 s: it is not its end that did it
			t.Fatalf("not carried through: %v", look(t, direct))
		}
	}
	if err := e.call(t.Context(), c); err == nil {
		t.Error("it can be ended twice")
	}
	return rule
}

// Whether the server applied it or never saw it: it is said in the end, and once.
func TestAnEndWhoseAnswerIsLostIsCarriedThrough(t *testing.T) {
	t.Parallel()
	for name, e := range allEnds {
		for how, fault := range map[string]faultproxy.Action{
			"applied": faultproxy.DropReply(), "not applied": faultproxy.DropCommand(),
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				r := newRoom(t, false, 30*time.Second)
				direct := r.straight(t)
				r.ended(t, e, fault, direct)
				if _, err := r.TryClaim(t.Context(), bson.D{{Key: "state", Value: "new"}}, nil); !errors.Is(err, ErrNoWork) {
					t.Errorf("claimed again: %v", err)
				}
			})
		}
	}
}

// late has an end arrive when it was carried through long ago, and somebody else
// has put the document back and claimed it. It reports whether that changed it.
func (r room) late(t *testing.T, e end) (changed bool) {
	t.Helper()
	direct := r.straight(t)
	stuck := r.ended(t, e, faultproxy.Orphan(), direct)
	if _, err := direct.DeleteOne(t.Context(), ID("o")); err != nil {
		t.Fatal(err)
	}
	put(t, direct, order{ID: "o", State: "put back"})
	rival := locksOn[order](t, direct)
	theirs := must(rival.TryClaim(t.Context(), bson.D{}, nil))(t)
	t.Cleanup(func() { _ = theirs.Release() })
	before := look(t, direct)
	stuck.Release()
	select {
	case <-stuck.Applied():
	case <-time.After(10 * time.Second):
		t.Fatal("the late end did not arrive")
	}
	return !bytes.Equal(before, look(t, direct))
}

func TestAnEndThatIsAppliedLateTouchesNobodyElses(t *testing.T) {
	t.Parallel()
	for name, e := range allEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if newRoom(t, false, 30*time.Second).late(t, e) {
				t.Error("it changed what somebody else has claimed")
			}
		})
	}
}

// The control: an end that does not name the acquisition ends the next one's.
func TestControlAnEndByKeyAloneIsAppliedLate(t *testing.T) {
	t.Parallel()
	for name, e := range allEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, false, 30*time.Second)
			r.store.broken.byKeyAlone = true
			if !r.late(t, e) {
				t.Error("it changed nothing all the same: naming it is not what protects")
			}
		})
	}
}

// lateSave has a save arrive after the next save of the same holder, and answers
// what the document has then.
func lateSave(t *testing.T, anyOrder bool) (state string) {
	r := newRoom(t, false, 30*time.Second)
	r.store.broken.anyOrder = anyOrder
	doc := must(r.Acquire(t.Context(), ID("o")))(t)
	stuck := r.proxy.On(saves.Nth(1), faultproxy.Orphan())
	doc.Value.State = "first"
	unknown(t, doc.Save(t.Context()))
	doc.Value.State = "second"
	if err := doc.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	stuck.Release()
	select {
	case <-stuck.Applied():
	case <-time.After(10 * time.Second):
		t.Fatal("the late save did not arrive")
	}
	raw := look(t, r.straight(t))
	if readLock(raw, "lock").id != doc.Lease().ID() {
		t.Error("the lock is gone")
	}
	if err := doc.SaveAndRelease(t.Context()); err != nil {
		t.Error(err)
	}
	return raw.Lookup("state").StringValue()
}

func TestASaveThatIsAppliedLateDoesNotUndoTheNextOne(t *testing.T) {
	t.Parallel()
	if state := lateSave(t, false); state != "second" {
		t.Errorf("the document has the %s save", state)
	}
}

// The control: without their numbers it does.
func TestControlWithoutANumberALateSaveUndoesTheNextOne(t *testing.T) {
	t.Parallel()
	if state := lateSave(t, true); state != "first" {
		t.Errorf("the document has the %s save all the same: it is not the number that protects", state)
	}
}
