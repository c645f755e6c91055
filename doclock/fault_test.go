package doclock

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// The commands of this package. A proxy tells them apart by what they set.
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

// A faulty is Locks whose connection goes through a proxy that injects faults.
type faulty struct {
	*Locks[order]
	proxy *faultproxy.Proxy
}

// behindProxy makes them, on a collection with the order "o" in the state "new". retry
// says whether the driver retries writes.
func behindProxy(t *testing.T, retry bool, ttl time.Duration, opts ...Option) faulty {
	t.Helper()
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	proxy := faultproxy.New(t, os.Getenv("MONGODB_URI"))
	behind := again(t, coll, proxy.URI(), func(o *options.ClientOptions) { o.SetRetryWrites(retry) })
	locks, err := New[order](behind, append(opts, With(mongolock.TTL(ttl)), WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	put(t, coll, order{ID: "first"}) // its claim learns where the server's clock can write, so no faulty command has to
	must(locks.TryAcquire(t.Context(), ID("first"), mongolock.TTL(time.Minute)))(t).Release()
	return faulty{locks, proxy}
}

// direct is the same collection, not through the proxy.
func (f faulty) direct(t *testing.T) *mongo.Collection {
	t.Helper()
	return again(t, f.store.base.W1, os.Getenv("MONGODB_URI"))
}

// free waits until the document has no holder, and returns its state.
func (f faulty) free(t *testing.T, within time.Duration) string {
	t.Helper()
	coll := f.direct(t)
	give := time.Now().Add(pace.Of(within))
	for {
		raw := get(t, coll, "o")
		if readLock(raw, "lock").holder().ID == "" {
			return raw.Lookup("state").StringValue()
		}
		require.True(t, time.Now().Before(give), "still locked after %v: %v", within, raw)
		time.Sleep(10 * time.Millisecond) // real: between two looks
	}
}

// applied waits until a command that a rule holds back has been applied.
func applied(t *testing.T, rule *faultproxy.Rule, within time.Duration) {
	t.Helper()
	select {
	case <-rule.Applied():
	case <-time.After(pace.Of(within)):
		require.FailNow(t, "the command that was held back did not arrive")
	}
}

// unknown requires that err leaves the outcome open, and stands for nothing else.
func unknown(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
	assert.NotErrorIs(t, err, mongolock.ErrHeld)
	assert.NotErrorIs(t, err, mongolock.ErrLost)
}

// oneHit requires that the fault happened: without it a test shows nothing.
func oneHit(t *testing.T, rule *faultproxy.Rule) {
	t.Helper()
	require.EqualValues(t, 1, rule.Hits(), "faults injected")
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
			f := behindProxy(t, false, 5*time.Second)
			rule := f.proxy.On(claims.Nth(1), fault())
			doc, err := f.Acquire(t.Context(), ID("o"))
			unknown(t, err)
			oneHit(t, rule)
			require.Nil(t, doc)
			assert.Equal(t, "new", f.free(t, time.Second))
		})
	}
}

func TestTheDriversRetryRecoversAGrantWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	needs(t, "retryable")
	for name, fault := range lost {
		if name == "write concern error" {
			continue // not retried
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := behindProxy(t, true, 10*time.Second)
			rule := f.proxy.On(claims.Nth(1), fault())
			doc, err := f.Acquire(t.Context(), ID("o"))
			require.NoError(t, err)
			oneHit(t, rule)
			doc.Value.State = "paid"
			assert.NoError(t, doc.SaveAndRelease(t.Context()))
		})
	}
}

func TestAnUnknownCreateLeavesAFreeDocument(t *testing.T) {
	t.Parallel()
	f := behindProxy(t, false, 5*time.Second)
	f.proxy.On(claims.Nth(1), faultproxy.DropReply())
	_, err := f.TryAcquireOrCreate(t.Context(), ID("o-2"), order{State: "created"})
	unknown(t, err)
	give := time.Now().Add(min(pace.Of(time.Second), 4*time.Second)) // its lease has 5 s
	for {
		doc, err := f.TryAcquireOrCreate(t.Context(), ID("o-2"), order{State: "created again"})
		if err == nil {
			assert.Equal(t, "created", doc.Value.State, "the document was created twice")
			return
		}
		require.ErrorIs(t, err, mongolock.ErrHeld)
		require.True(t, time.Now().Before(give), "still locked")
		time.Sleep(10 * time.Millisecond) // real: between two tries
	}
}

func TestAnUnknownSaveKeepsTheLockAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := behindProxy(t, false, 10*time.Second)
			doc := must(f.Acquire(t.Context(), ID("o")))(t)
			rule := f.proxy.On(saves.Nth(1), fault())
			doc.Value.State = "paid"
			unknown(t, doc.Save(t.Context()))
			oneHit(t, rule)
			require.NoError(t, doc.Lease().Err())
			require.NoError(t, doc.Save(t.Context()))
			doc.Value.State = "new" // as it was loaded: it must be written all the same
			require.NoError(t, doc.SaveAndRelease(t.Context()))
			assert.Equal(t, "new", f.free(t, 0))
		})
	}
}

func TestASaveAndReleaseOfUnknownOutcomeIsFinishedInTheBackground(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := behindProxy(t, false, 5*time.Second)
			doc := must(f.Acquire(t.Context(), ID("o")))(t)
			rule := f.proxy.On(releases.Nth(1), fault())
			doc.Value.State = "paid"
			unknown(t, doc.SaveAndRelease(t.Context()))
			oneHit(t, rule)
			assert.Equal(t, "paid", f.free(t, 3*time.Second), "the state when it was free")
		})
	}
}

func TestAReleaseOfUnknownOutcomeIsRepeated(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := behindProxy(t, false, 5*time.Second)
			doc := must(f.Acquire(t.Context(), ID("o")))(t)
			f.proxy.On(releases.Next(2), fault())
			unknown(t, doc.Release())
			f.free(t, 3*time.Second) // by the repetition: its 5 s are not over
		})
	}
}

func TestARenewalThatFailsOnceLosesNoLease(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ttl := pace.Of(4500 * time.Millisecond)
			f := behindProxy(t, false, ttl)
			doc := must(f.Acquire(t.Context(), ID("o")))(t)
			rule := f.proxy.On(renewals.Next(1), fault())
			time.Sleep(ttl * 10 / 9) // longer than it lasts
			assert.NoError(t, doc.Lease().Err())
			oneHit(t, rule)
		})
	}
}

// lateClaim has a claim arrive after its caller gave it up, it was cleaned up, and
// another process had the document and released it. It reports whether the claim locked
// the document.
func lateClaim(t *testing.T) (landed bool) {
	needs(t, "retryable")
	f := behindProxy(t, true, 3*time.Second)
	stuck := f.proxy.On(claims.Nth(1), faultproxy.Orphan())
	rest := f.proxy.On(claims.After(1), faultproxy.DropCommand())
	cleanUp := f.proxy.On(cleanUps.Nth(1), faultproxy.DelayReply(0))
	_, err := f.TryAcquire(t.Context(), ID("o"))
	unknown(t, err)
	rest.Remove()
	applied(t, cleanUp, 20*time.Second)
	other := locksOn[order](t, f.direct(t))
	must(other.TryAcquire(t.Context(), ID("o")))(t).Release()
	stuck.Release()
	applied(t, stuck, 5*time.Second)
	return readLock(get(t, f.direct(t), "o"), "lock").holder().ID != ""
}

func TestAClaimThatArrivesAfterItsCleanUpIsRefused(t *testing.T) {
	t.Parallel()
	assert.False(t, lateClaim(t), "it locked the document")
}

func TestAHolderThatIsCutOffSavesNothingLater(t *testing.T) {
	t.Parallel()
	f := behindProxy(t, true, pace.Of(1500*time.Millisecond))
	doc := must(f.Acquire(t.Context(), ID("o")))(t)
	ctx := doc.Lease().Context(context.Background())
	cut := f.proxy.On(faultproxy.Command("findAndModify"), faultproxy.DropCommand())
	defer cut.Remove() // or Close would wait for the late release
	select {
	case <-ctx.Done():
	case <-time.After(pace.Of(5 * time.Second)):
		require.FailNow(t, "the holder never learned that its lease is lost")
	}
	doc.Value.State = "late"
	assert.ErrorIs(t, doc.Save(t.Context()), mongolock.ErrLost)
	assert.ErrorIs(t, doc.SaveAndRelease(t.Context()), mongolock.ErrLost)
}

// The reply to a claim says when the server wrote it. Without that time it is not known how
// long the lease may be trusted.
func TestAGrantWithoutTheServersTimeIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]any{"none": nil, "a number": 17} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := behindProxy(t, false, 5*time.Second)
			rule := f.proxy.On(claims.Nth(1), faultproxy.EditReply(func(reply bson.D) bson.D { return withAt(reply, at) }))
			_, err := f.TryAcquire(t.Context(), ID("o"))
			unknown(t, err)
			oneHit(t, rule)
			assert.Equal(t, "new", f.free(t, 3*time.Second), "after the clean-up")
		})
	}
}

// lateGrant has a claim take more than half its TTL to arrive. Its expiry is then written
// once more, by a command whose reply suffers a fault.
func lateGrant(t *testing.T, fault faultproxy.Action) (*Document[order], error) {
	ttl := min(pace.Of(3*time.Second), 12*time.Second) // a call takes 10 s at most, and this one more than half of it
	f := behindProxy(t, false, ttl)
	f.proxy.On(claims.Nth(1), faultproxy.DelayCommand(ttl*19/30)) // the server's clock is known to a round trip only, which may be long
	rule := f.proxy.On(faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "update", "$max", "lock.since") }), fault)
	doc, err := f.TryAcquire(t.Context(), ID("o"))
	oneHit(t, rule)
	return doc, err
}

func TestALateGrantIsGivenItsTimeByTheServersTimeAlone(t *testing.T) {
	testserver.Need(t, "!router") // a router's time is not the documents'
	t.Parallel()
	_, err := lateGrant(t, faultproxy.EditReply(func(reply bson.D) bson.D { return withAt(reply, nil) }))
	unknown(t, err)
}

// The control: with the server's time it is granted.
func TestControlALateGrantIsGivenItsTime(t *testing.T) {
	testserver.Need(t, "!router") // a router's time is not the documents'
	t.Parallel()
	doc, err := lateGrant(t, faultproxy.DelayReply(0))
	require.NoError(t, err)
	assert.Positive(t, doc.Lease().Remaining())
}

// A renewal without it changes no deadline.
func TestARenewalWithoutTheServersTimeProlongsNothing(t *testing.T) {
	t.Parallel()
	f := behindProxy(t, false, 5*time.Second)
	doc := must(f.Acquire(t.Context(), ID("o"), mongolock.NoRenewal()))(t)
	time.Sleep(500 * time.Millisecond) // real: so that a lease that was prolonged would show it
	before := doc.Lease().Remaining()
	rule := f.proxy.On(renewals.Nth(1), faultproxy.EditReply(func(reply bson.D) bson.D { return withAt(reply, nil) }))
	assert.Error(t, doc.Lease().Renew(t.Context()))
	oneHit(t, rule)
	assert.LessOrEqual(t, doc.Lease().Remaining(), before)
	require.NoError(t, doc.Lease().Renew(t.Context()))
	assert.Greater(t, doc.Lease().Remaining(), before, "after an ordinary renewal")
}

// withAt replaces the server's time in the lock of a reply's document; nil removes it.
func withAt(reply bson.D, at any) bson.D {
	var edited bson.D
	for _, e := range reply {
		value, _ := e.Value.(bson.RawValue)
		isTime := e.Key == "at"
		switch inner, isDocument := value.DocumentOK(); {
		case isTime && at == nil:
			continue
		case isTime:
			e.Value = at
		case isDocument && (e.Key == "value" || e.Key == "lock"):
			var fields bson.D
			elements, _ := inner.Elements()
			for _, f := range elements {
				fields = append(fields, bson.E{Key: f.Key(), Value: f.Value()})
			}
			e.Value = withAt(fields, at)
		}
		edited = append(edited, e)
	}
	return edited
}
