//go:build knobs

package doclock

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// tamper takes a safety out of the filters of a store's commands; nil: none.
func (s *docStore) tamper(with func(lease.Step, bson.D) bson.D) { s.steps.Tamper = with }

// The control: a take-over that names the holder alone.
func TestControlATakeOverWithoutABeatEndsALiveHolder(t *testing.T) {
	for name, way := range ways {
		assert.True(t, takenOver(t, way, func(_ lease.Step, filter bson.D) bson.D {
			return without(filter, func(field string) bool { return field == "lock.beat" })
		}), "%s: held all the same: the beat is not what protects", name)
	}
}

// The control: a save that does not name the acquisition writes over the next one's.
func TestControlASaveByKeyAloneWritesAfterTheLoss(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	expire(t, coll, "o")
	must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
	locks.store.tamper(byKeyAlone)
	doc.Value.State = "late"
	err := doc.Save(t.Context())
	assert.Equal(t, "late", get(t, coll, "o").Lookup("state").StringValue(),
		"nothing was written all the same (%v): naming the acquisition is not what protects", err)
}

// The control: a clean-up that only takes the holder out loses what was to be saved.
func TestControlACleanUpOfAHandOverThatSavesNothingLosesTheValue(t *testing.T) {
	t.Parallel()
	f, waiting := observedBehindProxy(t)
	f.store.tamper(dropSave)
	removing := cleanUps.Where(func(c bson.Raw) bool { return !has(c, "query", "lock.nowhere") }) // not the one that is out
	_, next := handedOver(t, f, waiting, faultproxy.DropCommand(), removing, ends)
	assert.Equal(t, "new", next.Value.State, "saved all the same: the clean-up is not what saves")
}

// The control: a filter that does not ask what the field holds overwrites it.
func TestControlWithoutTheMarkTheApplicationsFieldIsOverwritten(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: 1}, {Key: "lock", Value: bson.D{{Key: "by", Value: "the application"}}}})
	before := contents(t, coll)
	locks := locksOn[bson.M](t, coll)
	locks.store.tamper(anyLock)
	_, err := locks.TryAcquire(t.Context(), ID(1))
	assert.NotEqual(t, before, contents(t, coll), "left alone all the same (%v): the mark is not what protects", err)
}

// The control: an ending that does not name the acquisition ends the next one.
func TestControlAnEndingByKeyAloneChangesAnotherClaim(t *testing.T) {
	t.Parallel()
	for name, way := range waysToEnd {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := behindProxy(t, false, 30*time.Second)
			f.store.tamper(byKeyAlone)
			before, after := f.lateEnd(t, way)
			assert.NotEqual(t, before, after, "it changed nothing all the same: naming the acquisition is not what protects")
		})
	}
}

// The control: without numbers a late save undoes the next one.
func TestControlWithoutANumberALateSaveUndoesTheNextOne(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "first", lateSave(t, true), "not undone all the same: the number is not what protects")
}

// The control: one that does not name the acquisition frees the next one's.
func TestControlAReleaseByKeyAloneFreesTheNextHolder(t *testing.T) {
	t.Parallel()
	assert.False(t, takenMeanwhile(t, true), "it is held all the same: naming the acquisition is not what protects")
}

// anyLock leaves claims that take whatever the application keeps in the lock's place.
func anyLock(what lease.Step, filter bson.D) bson.D {
	if what != lease.Acquire {
		return filter
	}
	return without(filter, func(field string) bool { return field == "$or" })
}

// dropSave leaves clean-ups of a hand-over that save nothing: the filter of the one that
// saves matches nothing.
func dropSave(what lease.Step, filter bson.D) bson.D {
	if saves := slices.ContainsFunc(filter, func(e bson.E) bool { return e.Key == "lock.released" }); what != lease.Undo || !saves {
		return filter
	}
	return append(slices.Clone(filter), bson.E{Key: "lock.nowhere", Value: 1})
}
