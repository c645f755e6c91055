package doclock

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/faultproxy"
)

// The commands of this package, as a proxy tells them apart: by what they set.
var (
	claims   = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "update", "$set", "lock.id") })
	saves    = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "update", "$set", "state") })
	releases = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "update", "$unset", "lock") })
	cleanUps = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "query", "lock.id", "$in") })
	renewals = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "update", "$max", "lock.expireAt") })
)

func has(c bson.Raw, path ...string) bool {
	_, err := c.LookupErr(path...)
	return err == nil
}

// A room is a document behind a proxy, and a hand on it that is not.
type room struct {
	*Locks[order]
	proxy *faultproxy.Proxy
}

func newRoom(t *testing.T, retry bool, ttl time.Duration, opts ...Option) room {
	t.Helper()
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	proxy := faultproxy.New(t, os.Getenv("MONGODB_URI"))
	behind := again(t, coll, proxy.URI(), func(o *options.ClientOptions) { o.SetRetryWrites(retry) })
	locks, err := New[order](behind, append(opts, With(mongolock.TTL(ttl), mongolock.WithLogger(slog.New(slog.DiscardHandler))))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	put(t, coll, order{ID: "first"}) // of it a server says where its clock can stand, in place of a command that is to be lost
	must(locks.TryAcquire(t.Context(), ID("first")))(t).Release()
	return room{locks, proxy}
}

// free waits until nobody holds the document, and answers its state.
func (r room) free(t *testing.T, within time.Duration) string {
	t.Helper()
	coll := again(t, r.store.base.Soft, os.Getenv("MONGODB_URI"))
	give := time.Now().Add(within)
	for {
		raw := get(t, coll, "o")
		if readLock(raw, "lock").id == "" {
			return raw.Lookup("state").StringValue()
		}
		if time.Now().After(give) {
			t.Fatalf("still locked after %v: %v", within, raw)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func unknown(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, mongolock.ErrOutcomeUnknown) || errors.Is(err, mongolock.ErrHeld) || errors.Is(err, mongolock.ErrLost) {
		t.Errorf("got %v: neither done nor unknown", err)
	}
}

var lost = map[string]func() faultproxy.Action{
	"reply dropped":       faultproxy.DropReply,
	"reply reset":         faultproxy.ResetReply,
	"command dropped":     faultproxy.DropCommand,
	"not primary":         faultproxy.NotPrimary,
	"not primary, late":   faultproxy.NotPrimaryReply,
	"write concern error": func() faultproxy.Action { return faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout) },
}

func TestAfterAnUnknownAcquireTheDocumentIsFreeWithinASecond(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, false, 5*time.Second)
			rule := r.proxy.On(claims.Nth(1), fault())
			doc, err := r.Acquire(t.Context(), ID("o"))
			unknown(t, err)
			if doc != nil || rule.Hits() != 1 {
				t.Fatalf("got %v, %d hits", doc, rule.Hits())
			}
			if state := r.free(t, time.Second); state != "new" {
				t.Errorf("its state is %q", state)
			}
		})
	}
}

func TestAGrantWhoseReplyIsLostOnceIsTheCallersByTheDriversRetry(t *testing.T) {
	t.Parallel()
	needs(t, "retryable")
	for name, fault := range lost {
		if name == "write concern error" {
			continue // not retried
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, true, 10*time.Second)
			rule := r.proxy.On(claims.Nth(1), fault())
			doc, err := r.Acquire(t.Context(), ID("o"))
			if err != nil || rule.Hits() != 1 {
				t.Fatalf("%v, %d hits", err, rule.Hits())
			}
			doc.Value.State = "paid"
			if err := doc.SaveAndRelease(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnUnknownCreateLeavesAFreeDocument(t *testing.T) {
	t.Parallel()
	r := newRoom(t, false, 5*time.Second)
	r.proxy.On(claims.Nth(1), faultproxy.DropReply())
	_, err := r.TryAcquireOrCreate(t.Context(), ID("o-2"), order{State: "created"})
	unknown(t, err)
	give := time.Now().Add(time.Second)
	for {
		doc, err := r.TryAcquireOrCreate(t.Context(), ID("o-2"), order{State: "created again"})
		if err == nil {
			if doc.Value.State != "created" {
				t.Errorf("made twice: %+v", doc.Value)
			}
			return
		}
		if !errors.Is(err, mongolock.ErrHeld) || time.Now().After(give) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAnUnknownSaveKeepsTheLockAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, false, 10*time.Second)
			doc := must(r.Acquire(t.Context(), ID("o")))(t)
			rule := r.proxy.On(saves.Nth(1), fault())
			doc.Value.State = "paid"
			unknown(t, doc.Save(t.Context()))
			if rule.Hits() != 1 || doc.Lease().Err() != nil {
				t.Fatalf("%d hits, %v", rule.Hits(), doc.Lease().Err())
			}
			if err := doc.Save(t.Context()); err != nil {
				t.Fatal(err)
			}
			doc.Value.State = "new" // as it was loaded: all the same it must be written
			if err := doc.SaveAndRelease(t.Context()); err != nil {
				t.Fatal(err)
			}
			if state := r.free(t, 0); state != "new" {
				t.Errorf("its state is %q", state)
			}
		})
	}
}

// An unknown SaveAndRelease is carried through in the background: whoever gets the
// document next sees the value saved, and nothing of it comes later.
func TestAnUnknownSaveAndReleaseIsCarriedThrough(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, false, 5*time.Second)
			doc := must(r.Acquire(t.Context(), ID("o")))(t)
			rule := r.proxy.On(releases.Nth(1), fault())
			doc.Value.State = "paid"
			unknown(t, doc.SaveAndRelease(t.Context()))
			if rule.Hits() != 1 {
				t.Fatal("nothing was lost: the test shows nothing")
			}
			if state := r.free(t, 3*time.Second); state != "paid" {
				t.Errorf("freed with state %q", state)
			}
		})
	}
}

func TestAnUnknownReleaseIsRepeatedUntilItIsThrough(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, false, 5*time.Second)
			doc := must(r.Acquire(t.Context(), ID("o")))(t)
			r.proxy.On(releases.Next(2), fault())
			unknown(t, doc.Release())
			r.free(t, 3*time.Second) // by its repetition, and not by the end of its 5 s
		})
	}
}

func TestARenewalThatFailsAndThenWorksLosesNothing(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, false, 4500*time.Millisecond)
			doc := must(r.Acquire(t.Context(), ID("o")))(t)
			rule := r.proxy.On(renewals.Next(1), fault())
			time.Sleep(5 * time.Second)
			if doc.Lease().Err() != nil || rule.Hits() != 1 {
				t.Errorf("%v after %d hits", doc.Lease().Err(), rule.Hits())
			}
		})
	}
}

// late has a claim arrive after its caller gave it up, it was cleaned up, and a
// rival had the document and gave it back.
func late(t *testing.T, broken bool) (landed bool) {
	needs(t, "retryable")
	r := newRoom(t, true, 3*time.Second)
	r.store.broken.undoElsewhere = broken
	stuck := r.proxy.On(claims.Nth(1), faultproxy.Orphan())
	rest := r.proxy.On(claims.After(1), faultproxy.DropCommand())
	cleanUp := r.proxy.On(cleanUps.Nth(1), faultproxy.DelayReply(0))
	_, err := r.TryAcquire(t.Context(), ID("o"))
	unknown(t, err)
	rest.Remove()
	select {
	case <-cleanUp.Applied():
	case <-time.After(20 * time.Second):
		t.Fatal("the late claim was not cleaned up")
	}
	rival := locksOn[order](t, again(t, r.store.base.Soft, os.Getenv("MONGODB_URI")))
	must(rival.TryAcquire(t.Context(), ID("o")))(t).Release()
	stuck.Release()
	select {
	case <-stuck.Applied():
	case <-time.After(5 * time.Second):
		t.Fatal("the late claim did not arrive")
	}
	return readLock(get(t, again(t, r.store.base.Soft, os.Getenv("MONGODB_URI")), "o"), "lock").id != ""
}

func TestAClaimThatArrivesAfterItsCleanUpIsRefused(t *testing.T) {
	t.Parallel()
	if late(t, false) {
		t.Error("it locked the document")
	}
}

// The control: cleaned up in another session it lands.
func TestControlACleanUpInAnotherSessionLetsALateClaimIn(t *testing.T) {
	t.Parallel()
	if !late(t, true) {
		t.Error("refused all the same: the session is not what protects")
	}
}

func TestAHolderThatIsCutOffSavesNothingLater(t *testing.T) {
	t.Parallel()
	r := newRoom(t, true, 1500*time.Millisecond)
	doc := must(r.Acquire(t.Context(), ID("o")))(t)
	ctx := doc.Lease().Context(context.Background())
	cut := r.proxy.On(faultproxy.Command("findAndModify"), faultproxy.DropCommand())
	defer cut.Remove() // or Close would wait for the late release
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("it never learnt")
	}
	doc.Value.State = "late"
	if err := doc.Save(t.Context()); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("the save: %v", err)
	}
	if err := doc.SaveAndRelease(t.Context()); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("save and release: %v", err)
	}
}
