package doclock

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/mongolease"
)

// Each of these takes one safety out of the filters of a store, for the control of the
// tests that show what it is for.

// tamper takes a safety out of the filters of a store's commands; nil: none.
func (s *docStore) tamper(with func(mongolease.Step, bson.D) bson.D) {
	if with == nil {
		return
	}
	s.steps.Tamper = func(what mongolease.Step, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (bson.D, bson.D, *options.FindOneAndUpdateOptionsBuilder) {
		return with(what, filter), update, opts
	}
}

// byKeyAlone leaves commands that do not name the acquisition.
func byKeyAlone(what mongolease.Step, filter bson.D) bson.D {
	switch what {
	case mongolease.Acquire, mongolease.TakeOver, mongolease.Word:
		return filter
	}
	return without(filter, func(field string) bool { return strings.HasPrefix(field, "lock.") && field != "lock.saves" })
}

// savesInAnyOrder leaves saves that do not ask whether a later one was written.
func savesInAnyOrder(_ mongolease.Step, filter bson.D) bson.D {
	return without(filter, func(field string) bool { return field == "lock.saves" })
}

// anyLock leaves claims that take whatever the application keeps in the lock's place.
func anyLock(what mongolease.Step, filter bson.D) bson.D {
	if what != mongolease.Acquire {
		return filter
	}
	return without(filter, func(field string) bool { return field == "$or" })
}

// dropSave leaves clean-ups of a hand-over that save nothing: the filter of the one that
// saves matches nothing.
func dropSave(what mongolease.Step, filter bson.D) bson.D {
	if saves := slices.ContainsFunc(filter, func(e bson.E) bool { return e.Key == "lock.released" }); what != mongolease.Undo || !saves {
		return filter
	}
	return append(slices.Clone(filter), bson.E{Key: "lock.nowhere", Value: 1})
}

func without(filter bson.D, drop func(field string) bool) bson.D {
	return slices.DeleteFunc(slices.Clone(filter), func(e bson.E) bool { return drop(e.Key) })
}
