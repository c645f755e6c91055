package doclock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func TestASaveWritesWhatChangedAndKeepsTheLock(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: "o"}, {Key: "state", Value: "new"}, {Key: "total", Value: 3}, {Key: "other", Value: "theirs"}})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	doc.Value.State, doc.Value.Total = "paid", 0 // omitempty: the field is removed
	require.NoError(t, doc.Save(t.Context()))
	raw := get(t, coll, "o")
	assert.Equal(t, "paid", raw.Lookup("state").StringValue())
	assert.Zero(t, raw.Lookup("total"))
	assert.Equal(t, "theirs", raw.Lookup("other").StringValue(), "a field that the type does not have")
	assert.Equal(t, doc.Lease().ID(), readLock(raw, "lock").holder().ID, "the holder")
	doc.Value.ID = "another"
	assert.ErrorContains(t, doc.Save(t.Context()), "_id")
}

// halfSeen has a document go through many holders. Each makes its number odd with a Save.
// Then free makes the number even, writes the holder's ID and releases the document.
// halfSeen returns how many looks saw half of free: an odd number without a holder, or an
// ID whose holder is still there.
func halfSeen(t *testing.T, free func(context.Context, *Document[bson.M]) error) (half int64) {
	coll := collection(t)
	put(t, coll, bson.M{"_id": "o", "n": int32(0)})
	done := make(chan struct{})
	var wrong atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				raw, err := coll.FindOne(context.Background(), ID("o")).Raw()
				if !assert.NoError(t, err) {
					return
				}
				by, _ := raw.Lookup("by").StringValueOK()
				holder := readLock(raw, "lock").holder().ID
				if raw.Lookup("n").Int32()%2 == 1 && holder == "" || by != "" && by == holder {
					wrong.Add(1)
				}
			}
		})
	}
	locks := locksOn[bson.M](t, coll)
	for range 60 {
		doc := must(locks.Acquire(t.Context(), ID("o")))(t)
		doc.Value["n"] = doc.Value["n"].(int32) + 1
		require.NoError(t, doc.Save(t.Context()))
		doc.Value["n"] = doc.Value["n"].(int32) + 1
		doc.Value["by"] = doc.Lease().ID()
		require.NoError(t, free(t.Context(), doc))
	}
	close(done)
	wg.Wait()
	return wrong.Load()
}

func TestTheNewValueIsNeverSeenLockedNorTheOldOneFree(t *testing.T) {
	needs(t, "atomic")
	assert.Zero(t, halfSeen(t, func(ctx context.Context, d *Document[bson.M]) error { return d.SaveAndRelease(ctx) }))
}

// The control: in two steps it is seen.
func TestControlASaveSplitFromItsReleaseIsNoticed(t *testing.T) {
	needs(t, "atomic")
	assert.NotZero(t, halfSeen(t, func(ctx context.Context, d *Document[bson.M]) error {
		return errors.Join(d.Save(ctx), d.Release())
	}), "not seen: the looks show nothing")
}

func TestASaveAfterTheLeaseWasLostWritesNothing(t *testing.T) {
	testserver.Need(t, "!router") // behind one the date does not end a lease
	for name, lose := range map[string]func(*testing.T, *mongo.Collection, *Document[order]){
		"taken over": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			expire(t, coll, "o")
			must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
		},
		"run out": func(t *testing.T, coll *mongo.Collection, d *Document[order]) { expire(t, coll, "o") },
		"removed by hand": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			_, err := coll.UpdateOne(t.Context(), ID("o"), bson.M{"$unset": bson.M{"lock": ""}})
			require.NoError(t, err)
		},
		"broken": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			require.NoError(t, d.locks.store.Break(t.Context(), d.ref(), "because", false))
		},
		"the document is gone": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			_, err := coll.DeleteOne(t.Context(), ID("o"))
			require.NoError(t, err)
		},
		"and known to be": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			expire(t, coll, "o")
			must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
			_ = d.Lease().Renew(t.Context())
			<-d.Lease().Done()
		},
	} {
		for how, save := range map[string]func(*Document[order]) error{
			"Save":           func(d *Document[order]) error { return d.Save(context.Background()) },
			"SaveAndRelease": func(d *Document[order]) error { return d.SaveAndRelease(context.Background()) },
			"Complete":       func(d *Document[order]) error { return claimed(d).Complete(context.Background()) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				if name == "run out" {
					needs(t, "!router") // there an end is certain a minute later
				}
				t.Parallel()
				coll := collection(t)
				put(t, coll, order{ID: "o", State: "new"})
				doc := must(locksOn[order](t, coll).Acquire(t.Context(), ID("o")))(t)
				lose(t, coll, doc)
				doc.Value.State = "late"
				err := save(doc)
				require.ErrorIs(t, err, mongolock.ErrLost)
				assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
				if name != "the document is gone" {
					assert.Equal(t, "new", get(t, coll, "o").Lookup("state").StringValue())
				}
			})
		}
	}
}

func TestAReleaseAfterTheLossFreesNoOtherHolder(t *testing.T) {
	testserver.Need(t, "!router") // behind one the date does not end a lease
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	doc := must(locksOn[order](t, coll).Acquire(t.Context(), ID("o")))(t)
	expire(t, coll, "o")
	next := must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
	assert.ErrorIs(t, doc.Release(), mongolock.ErrLost)
	assert.Equal(t, next.Lease().ID(), readLock(get(t, coll, "o"), "lock").holder().ID, "the holder")
	assert.Greater(t, next.Lease().Token(), doc.Lease().Token())
}

func TestAWaiterGetsTheDocumentAsItsLastHolderSavedIt(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	mine := locksOn[order](t, coll)
	for name, theirs := range map[string]*Locks[order]{"of this process": mine, "of another": locksOn[order](t, coll)} {
		doc := must(mine.Acquire(t.Context(), ID("o")))(t)
		next := make(chan *Document[order])
		go func() {
			d, err := theirs.Acquire(t.Context(), ID("o"))
			assert.NoError(t, err)
			next <- d
		}()
		time.Sleep(100 * time.Millisecond) // real: until it waits
		doc.Value.State = name
		require.NoError(t, doc.SaveAndRelease(t.Context()))
		got := <-next
		require.NotNil(t, got)
		require.Equal(t, name, got.Value.State)
		got.Release()
	}
}

// expire sets the lock of a document to have run out a minute ago.
func expire(t testing.TB, coll *mongo.Collection, id any) {
	t.Helper()
	_, err := coll.UpdateOne(t.Context(), ID(id), bson.M{"$set": bson.M{"lock.expireAt": time.Now().Add(-time.Minute)}})
	require.NoError(t, err)
}

// endings are the calls that end a claim.
var endings = map[string]func(*Claimed[bson.M], context.Context) error{
	"Complete":           (*Claimed[bson.M]).Complete,
	"Remove":             (*Claimed[bson.M]).Remove,
	"Requeue":            func(c *Claimed[bson.M], ctx context.Context) error { return c.Requeue(ctx, time.Minute) },
	"Requeue before now": func(c *Claimed[bson.M], ctx context.Context) error { return c.Requeue(ctx, -1) },
	"Requeue for longer than a year": func(c *Claimed[bson.M], ctx context.Context) error {
		return c.Requeue(ctx, 366*24*time.Hour)
	},
}

// claimOne has a document that is claimed by the first of two processes.
func claimOne(t *testing.T) (msg *Claimed[bson.M], other *Locks[bson.M]) {
	s := newReplicaSet(0)
	coll := s.collection(t)
	put(t, coll, bson.M{"_id": "m", "state": "ready"})
	msg, err := locksOn[bson.M](t, coll).TryClaim(t.Context(), ready, nil)
	require.NoError(t, err)
	return msg, locksOn[bson.M](t, s.collection(t))
}

func isFreeAndUnchanged(t *testing.T, other *Locks[bson.M], name string) {
	t.Helper()
	next, err := other.TryClaim(t.Context(), ready, nil)
	require.NoError(t, err, "after %s the document is held for as long as the process lives", name)
	assert.Equal(t, "ready", next.Value["state"])
	require.NoError(t, next.Release())
}

func TestAnEndingWhoseContextHasEndedReleasesTheDocument(t *testing.T) {
	for name, end := range endings {
		synctest.Test(t, func(t *testing.T) {
			msg, other := claimOne(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			msg.Value["state"] = "sent"
			assert.Error(t, end(msg, ctx), name)
			assert.ErrorIs(t, msg.Lease().Err(), mongolock.ErrReleased, name)
			isFreeAndUnchanged(t, other, name)
		})
	}
}

func TestAnEndingWhoseValueCannotBeEncodedReleasesTheDocument(t *testing.T) {
	for name, end := range endings {
		synctest.Test(t, func(t *testing.T) {
			msg, other := claimOne(t)
			msg.Value["a.b"] = 1
			err := end(msg, t.Context())
			if name == "Remove" {
				assert.NoError(t, err, "it saves nothing")
				return
			}
			assert.Error(t, err, name)
			isFreeAndUnchanged(t, other, name)
		})
	}
}

func TestASaveAndReleaseThatCannotBeginReleasesTheDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		msg, other := claimOne(t)
		require.NoError(t, msg.Release())
		mine := msg.doc.locks
		doc, err := mine.TryAcquire(t.Context(), ID("m"))
		require.NoError(t, err)
		doc.Value["a.b"] = 1
		assert.ErrorContains(t, doc.Save(t.Context()), `"a.b"`)
		assert.NoError(t, doc.Lease().Err(), "Save keeps the lock")
		assert.ErrorContains(t, doc.SaveAndRelease(t.Context()), `"a.b"`)
		isFreeAndUnchanged(t, other, "SaveAndRelease")

		doc, err = mine.TryAcquire(t.Context(), ID("m"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, doc.SaveAndRelease(ctx), context.Canceled)
		isFreeAndUnchanged(t, other, "SaveAndRelease")
	})
}

// The caller may abort the transaction and begin it again, under the same lease.
func TestAnEndingThatFailsInATransactionKeepsTheDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		msg, other := claimOne(t)
		session, err := msg.doc.locks.store.base.W1.Database().Client().StartSession()
		require.NoError(t, err)
		defer session.EndSession(t.Context())
		require.NoError(t, session.StartTransaction())
		msg.Value["a.b"] = 1
		assert.Error(t, msg.Complete(mongo.NewSessionContext(t.Context(), session)))
		assert.NoError(t, msg.Lease().Err())
		_, err = other.TryClaim(t.Context(), ready, nil)
		assert.ErrorIs(t, err, ErrNoWork)
		require.NoError(t, session.AbortTransaction(t.Context()))
		require.NoError(t, msg.Release())
	})
}
