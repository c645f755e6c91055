package doclock

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/store"
)

func TestAnAcquireReturnsTheDocumentAsItStood(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: "o-1"}, {Key: "state", Value: "new"}, {Key: "total", Value: 42}})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o-1")))(t)
	assert.Equal(t, order{"o-1", "new", 42}, doc.Value)
	assert.Positive(t, doc.Lease().Token())
	assert.NoError(t, doc.Lease().Err())
	assert.Positive(t, doc.Lease().Remaining())
	lock := readLock(get(t, coll, "o-1"), "lock")
	assert.Equal(t, doc.Lease().ID(), lock.holder().ID, "the holder in the document")
	assert.NotZero(t, lock.holder().ExpireAt)

	_, err := locks.TryAcquire(t.Context(), ID("o-1"))
	var held *mongolock.HeldError
	require.ErrorAs(t, err, &held)
	assert.Equal(t, doc.Lease().ID(), held.Holders[0].ID)
	assert.Positive(t, held.Left())

	require.NoError(t, doc.Release())
	assert.Zero(t, get(t, coll, "o-1").Lookup("lock"), "the lock after the release")
}

func TestEachStepIsOneCommand(t *testing.T) {
	needs(t, "atomic") // the embedded server has no operationTime: a claim takes one more there
	var tap testserver.Tap
	coll := collection(t, tap.On)
	locks := locksOn[order](t, coll)
	put(t, coll, order{ID: "o"})
	must(locks.TryAcquire(t.Context(), ID("o")))(t).Release() // the first one also sends a hello
	tap.TakeNames()
	expect := func(step string, want ...string) {
		t.Helper()
		assert.Equal(t, want, tap.TakeNames(), step)
	}
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	expect("acquire", "findAndModify")
	doc.Value.State = "paid"
	require.NoError(t, doc.Save(t.Context()))
	expect("save", "findAndModify")
	require.NoError(t, doc.Lease().Renew(t.Context()))
	expect("renew", "findAndModify")
	doc.Value.State = "sent"
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	expect("save and release", "findAndModify")
	must(locks.TryAcquire(t.Context(), ID("o")))(t).Release()
	expect("acquire, release", "findAndModify", "findAndModify")
	must(locks.TryAcquireOrCreate(t.Context(), ID("o-2"), order{State: "new"}))(t).Release()
	expect("create, release", "findAndModify", "findAndModify")
}

// A process that was cut off for long may have lost a thousand documents.
func TestTwoFindsTellThatAnyNumberOfDocumentsAreGone(t *testing.T) {
	var tap testserver.Tap
	s := newDocStore(collection(t, tap.On), "lock")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	batch := make([]store.Renewal, 50)
	for i := range batch {
		batch[i] = store.Renewal{Ref: store.Ref{Key: toKey(fmt.Sprint("gone-", i)), ID: fmt.Sprint(i), Mode: store.Exclusive}, TTL: time.Minute}
	}
	for i, a := range s.Renew(ctx, batch) {
		assert.ErrorIs(t, a.Err, store.ErrGone, "document %d", i)
	}
	finds := slices.DeleteFunc(tap.TakeNames(), func(name string) bool { return name != "find" })
	assert.Len(t, finds, 2)
}

// A server refuses to read a field and one in it; the simulated one does as MongoDB does.
func TestDocumentsMayBeNamedByAFieldAndByOneInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := newReplicaSet(0).collection(t)
		put(t, coll, bson.M{"_id": 1, "of": bson.M{"shop": "a"}}, bson.M{"_id": 2, "of": bson.M{"shop": "b", "n": 7}})
		locks := locksOn[bson.M](t, coll)
		var keys []string
		for _, filter := range []bson.D{{{Key: "of", Value: bson.D{{Key: "shop", Value: "a"}}}}, {{Key: "of.shop", Value: "b"}}} {
			must(locks.TryAcquire(t.Context(), filter))(t)
			keys = append(keys, must(textOf(filter))(t))
		}
		for _, status := range must(locks.store.Look(t.Context(), keys))(t) {
			assert.Len(t, status.Holders, 1, status.Key)
		}
		require.NoError(t, locks.Close())
	})
}

func TestAMissingDocumentIsNotFoundAndNotHeld(t *testing.T) {
	locks := locksOn[order](t, collection(t))
	for name, acquire := range map[string]func(context.Context, any, ...mongolock.AcquireOption) (*Document[order], error){
		"Acquire": locks.Acquire, "TryAcquire": locks.TryAcquire,
	} {
		_, err := acquire(t.Context(), ID("nobody"))
		require.ErrorIs(t, err, ErrNotFound, name)
		assert.NotErrorIs(t, err, mongolock.ErrHeld, name)
		assert.ErrorContains(t, err, "nobody", name)
	}
}

func TestAWaiterLearnsThatItsDocumentWasRemoved(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	doc := must(locksOn[order](t, coll).Acquire(t.Context(), ID("o")))(t)
	failed := make(chan error)
	other := locksOn[order](t, coll)
	go func() {
		_, err := other.Acquire(t.Context(), ID("o"))
		failed <- err
	}()
	place := awaited(t, coll, "o")
	_, err := coll.DeleteOne(t.Context(), ID("o"))
	require.NoError(t, err)
	assert.ErrorIs(t, doc.Release(), mongolock.ErrLost, "the holder's release")
	// The release tells no waiter, because it found nothing: a notice brings the next look forward.
	_ = locksOn[order](t, coll).store.Notify(t.Context(), offered(doc, place))
	assert.ErrorIs(t, <-failed, ErrNotFound, "the waiter")
}

func TestRivalsCreateADocumentOnceAndLocked(t *testing.T) {
	needs(t, "atomic")
	coll := collection(t)
	const rivals = 8
	granted := make(chan *Document[order], rivals)
	refused := make(chan error, rivals)
	for range rivals {
		locks := locksOn[order](t, coll)
		go func() {
			doc, err := locks.TryAcquireOrCreate(t.Context(), ID("o"), order{State: "new", Total: 7})
			if err != nil {
				refused <- err
				return
			}
			granted <- doc
		}()
	}
	doc := <-granted
	for range rivals - 1 {
		assert.ErrorIs(t, <-refused, mongolock.ErrHeld, "a rival")
	}
	assert.Equal(t, order{"o", "new", 7}, doc.Value)
	doc.Value.State = "paid"
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	doc = must(locksOn[order](t, coll).TryAcquireOrCreate(t.Context(), ID("o"), order{State: "new"}))(t)
	assert.Equal(t, "paid", doc.Value.State, "a document that exists must not be overwritten")
}

type saga struct {
	Tenant string `bson:"tenant"`
	Key    string `bson:"key"`
	Type   string `bson:"type"`
	Step   int    `bson:"step"`
}

// sagas is a collection with a unique index on two fields.
func sagas(t *testing.T, opts ...func(*options.ClientOptions)) *mongo.Collection {
	coll := collection(t, opts...)
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys: bson.D{{Key: "key", Value: 1}, {Key: "type", Value: 1}}, Options: options.Index().SetUnique(true),
	})
	if err != nil {
		t.Skipf("needs a unique index: %v", err)
	}
	return coll
}

func TestTheSameKeyOfAnotherTypeIsAnotherLock(t *testing.T) {
	coll := sagas(t)
	locks := locksOn[saga](t, coll)
	of := func(kind string) bson.M { return bson.M{"type": kind, "key": "17"} }
	one := must(locks.TryAcquireOrCreate(t.Context(), of("order"), saga{Step: 1}))(t)
	two := must(locks.TryAcquireOrCreate(t.Context(), of("invoice"), saga{Step: 2}))(t)
	assert.Equal(t, saga{Type: "order", Key: "17", Step: 1}, one.Value)
	assert.Equal(t, saga{Type: "invoice", Key: "17", Step: 2}, two.Value)
	_, err := locks.TryAcquire(t.Context(), bson.D{{Key: "key", Value: "17"}, {Key: "type", Value: "order"}})
	assert.ErrorIs(t, err, mongolock.ErrHeld, "the fields in another order")
	_, err = locks.TryAcquire(t.Context(), of("refund"))
	assert.ErrorIs(t, err, ErrNotFound, "a third type")
}

func TestTwoFieldsAreTwoLocksOnOneDocument(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
	must(locksOn[bson.M](t, coll, Field("audit")).TryAcquire(t.Context(), ID("o")))(t)
}

func TestAFilterThatMatchesSeveralDocumentsIsRefusedAndChangesNone(t *testing.T) {
	coll := collection(t)
	put(t, coll, saga{Tenant: "a", Key: "17"}, saga{Tenant: "b", Key: "17"}, saga{Tenant: "b", Key: "18"})
	before := contents(t, coll)
	locks := locksOn[saga](t, coll)
	for _, acquire := range []func(context.Context, any, ...mongolock.AcquireOption) (*Document[saga], error){locks.Acquire, locks.TryAcquire} {
		_, err := acquire(t.Context(), bson.M{"key": "17"})
		require.ErrorIs(t, err, ErrAmbiguous)
		assert.ErrorContains(t, err, "several")
	}
	_, err := locks.TryAcquireOrCreate(t.Context(), bson.M{"key": "18"}, saga{})
	require.ErrorIs(t, err, ErrAmbiguous, "creating without a unique index")
	assert.ErrorContains(t, err, "unique index")
	assert.Equal(t, before, contents(t, coll))

	// A filter that matches one document now locks that one.
	doc := must(locks.TryAcquire(t.Context(), bson.M{"key": "18"}))(t)
	_, err = locks.TryAcquire(t.Context(), ID(doc.ID()))
	assert.ErrorIs(t, err, mongolock.ErrHeld, "by its _id")
}

func TestADocumentThatDoesNotDecodeIsReleasedUnchanged(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: "o"}, {Key: "state", Value: bson.A{1, 2}}})
	before := contents(t, coll)
	_, err := locksOn[order](t, coll).TryAcquire(t.Context(), ID("o"))
	require.ErrorIs(t, err, ErrDecode)
	assert.ErrorContains(t, err, `"o"`)
	assert.Equal(t, before, contents(t, coll))
	must(locksOn[bson.M](t, coll).TryAcquire(t.Context(), ID("o")))(t)
}

func TestAFieldOfTheApplicationIsNotTakenForALock(t *testing.T) {
	coll := collection(t)
	for i, f := range foreignFields {
		put(t, coll, append(ID(i), f...))
	}
	before := contents(t, coll)
	locks := locksOn[bson.M](t, coll)
	for i, f := range foreignFields {
		for name, acquire := range map[string]func() error{
			"TryAcquire":         func() error { _, err := locks.TryAcquire(t.Context(), ID(i)); return err },
			"Acquire":            func() error { _, err := locks.Acquire(t.Context(), ID(i)); return err },
			"TryAcquireOrCreate": func() error { _, err := locks.TryAcquireOrCreate(t.Context(), ID(i), bson.M{"x": 1}); return err },
		} {
			err := acquire()
			require.ErrorIs(t, err, mongolock.ErrForeign, "%s of %v", name, f)
			assert.ErrorContains(t, err, "field lock", "%s of %v", name, f)
		}
	}
	_, err := locks.TryClaim(t.Context(), bson.M{}, nil)
	assert.ErrorIs(t, err, mongolock.ErrForeign, "a claim")
	assert.Equal(t, before, contents(t, coll))
}

// A router before MongoDB 7.1 refuses a write to one document that does not name its shard key. A
// document that is asked for by other fields is looked for first.
func TestBehindARouterEveryWriteNamesTheDocumentByItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &replicaSet{docset.NewSharded(func(id string) int { return len(id) % 2 }, 0, 0)}
		coll := set.collection(t)
		put(t, coll, order{ID: "a", State: "new"}, order{ID: "bb", State: "ready"})
		locks, others := locksOn[order](t, coll), locksOn[order](t, set.collection(t))
		doc := must(locks.TryAcquire(t.Context(), bson.D{{Key: "state", Value: "ready"}}))(t)
		assert.Equal(t, "bb", doc.Value.ID)
		_, err := others.TryAcquire(t.Context(), bson.D{{Key: "state", Value: "ready"}})
		require.ErrorIs(t, err, mongolock.ErrHeld)
		require.NoError(t, doc.Save(t.Context()))
		require.NoError(t, doc.Lease().Renew(t.Context()))
		require.NoError(t, doc.Release())
		claimed := must(others.TryClaim(t.Context(), ready, nil))(t)
		require.NoError(t, claimed.Complete(t.Context()))
		require.NoError(t, locks.Close())
		require.NoError(t, others.Close())
	})
}
