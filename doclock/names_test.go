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
	"github.com/mongolock/mongolock/store"
)

// awaited waits until a claim is in line for a document, and returns the first.
func awaited(t *testing.T, coll *mongo.Collection, id any) (first store.Place) {
	t.Helper()
	require.Eventually(t, func() bool {
		raw, err := coll.FindOne(context.Background(), ID(id)).Raw()
		line := readLock(raw, "lock").Line
		if len(line) > 0 {
			first = line[0].Place
		}
		return assert.NoError(t, err) && len(line) > 0
	}, 10*time.Second, 5*time.Millisecond, "nobody waits")
	return first
}

// acquiring acquires in the background.
func acquiring(t *testing.T, locks *Locks[saga], filter any) <-chan *Document[saga] {
	got := make(chan *Document[saga], 1)
	go func() {
		doc, err := locks.Acquire(t.Context(), filter)
		assert.NoError(t, err)
		got <- doc
	}()
	return got
}

// Without a wake-up a waiter would look again after many seconds.
func TestAWaiterIsWokenWhateverNameTheDocumentWasLockedBy(t *testing.T) {
	t.Parallel()
	needs(t, "capped", "atomic")
	byFields := bson.M{"key": "17", "type": "order"}
	withID := bson.M{"_id": 17, "type": "order"}
	for name, c := range map[string]struct{ holder, waiter any }{
		"one type of number, another":         {ID(int64(17)), ID(int32(17))},
		"a double, an integer":                {ID(17.0), ID(17)},
		"unique fields, _id":                  {byFields, ID(17)},
		"_id, unique fields":                  {ID(17), byFields},
		"_id with more fields, _id":           {withID, ID(17)},
		"unique fields, _id with more fields": {byFields, withID},
		"unique fields, the same":             {byFields, byFields},
	} {
		for where, same := range map[string]bool{"in one process": true, "in two": false} {
			t.Run(name+", "+where, func(t *testing.T) {
				t.Parallel()
				coll := sagas(t)
				put(t, coll, bson.D{{Key: "_id", Value: int64(17)}, {Key: "key", Value: "17"}, {Key: "type", Value: "order"}, {Key: "step", Value: 1}})
				seen := make(waits, 8)
				theirs := locksOn[saga](t, coll, WithObserver(seen))
				mine := theirs
				if !same {
					mine = locksOn[saga](t, coll)
				}
				doc := must(mine.Acquire(t.Context(), c.holder, mongolock.TTL(time.Minute)))(t)
				got := acquiring(t, theirs, c.waiter)
				<-seen
				time.Sleep(time.Second) // it sleeps, and listens
				doc.Value.Step = 2
				released := time.Now()
				require.NoError(t, doc.SaveAndRelease(t.Context()))
				next := <-got
				assert.Less(t, time.Since(released), pace.Of(3*time.Second))
				require.NotNil(t, next)
				assert.Equal(t, 2, next.Value.Step)
			})
		}
	}
}

func TestAWaiterByUniqueFieldsGetsTheDocumentThatHasThemInTheEnd(t *testing.T) {
	t.Parallel()
	coll := sagas(t)
	put(t, coll, bson.M{"_id": 1, "key": "17", "type": "order"}, bson.M{"_id": 2, "key": "18", "type": "order"})
	doc := must(locksOn[bson.M](t, coll).Acquire(t.Context(), ID(1)))(t)
	locks := locksOn[bson.M](t, coll)
	got := make(chan *Document[bson.M], 1)
	go func() {
		d, err := locks.Acquire(t.Context(), bson.M{"key": "17", "type": "order"})
		assert.NoError(t, err)
		got <- d
	}()
	awaited(t, coll, 1)
	time.Sleep(2 * time.Second) // it sleeps while no document has these values
	set(t, coll, 1, "key", "16")
	set(t, coll, 2, "key", "17")
	require.NoError(t, doc.Release())
	next := <-got
	require.NotNil(t, next)
	assert.EqualValues(t, 2, next.ID().AsInt64())
	assert.Empty(t, readLock(get(t, coll, 1), "lock").holder().ID, "the holder of the document that had them before")
}

// It waits for a document in one state. Its holder, in the same process, changes the state
// as it releases the document, so it is not handed over.
func TestAWaiterIsNotHandedADocumentThatNoLongerMatches(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	seen := make(waits, 1)
	locks := locksOn[order](t, coll, WithObserver(seen))
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	failed := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(t.Context(), bson.M{"_id": "o", "state": "new"})
		failed <- err
	}()
	<-seen
	doc.Value.State = "paid"
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	err := <-failed
	assert.ErrorIs(t, err, ErrNotFound)
	assert.ErrorContains(t, err, `{"_id":"o","state":"new"}`)
}

func TestADocumentIsCreatedWithItsIDOfTheTypeGiven(t *testing.T) {
	coll := collection(t)
	must(locksOn[bson.M](t, coll).AcquireOrCreate(t.Context(), ID(int64(17)), bson.M{}))(t)
	assert.Equal(t, bson.TypeInt64, get(t, coll, 17).Lookup("_id").Type)
}

func TestTheNamesOfFreedDocumentsAreForgotten(t *testing.T) {
	var f freedNames
	f.add(`{"sku":"x"}`, asValue(17))
	f.add(`{"_id":"y"}`, asValue("y")) // known by its _id
	f.add(`{"sku":"z"}`, bson.RawValue{})
	assert.Equal(t, `{"_id":17}`, f.of(`{"sku":"x"}`))
	assert.Equal(t, `{"_id":"y"}`, f.of(`{"_id":"y"}`))
	assert.Equal(t, `{"sku":"z"}`, f.of(`{"sku":"z"}`))
	require.Len(t, f.keys.All, 1)
	old := f.keys.All[`{"sku":"x"}`]
	old.at = old.at.Add(-2 * freedFor)
	f.keys.All[`{"sku":"x"}`] = old
	for i := range 1000 {
		f.add(asValue(bson.D{{Key: "sku", Value: i}}).String(), asValue(i))
	}
	assert.NotContains(t, f.keys.All, `{"sku":"x"}`)
}
