package doclock

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/mongolease"
)

// Each of these takes one safety out of the filters of a store, for the control of the
// tests that show what it is for.

// byKeyAlone leaves commands that do not name the acquisition.
func byKeyAlone(what mongolease.Step, filter bson.D) bson.D {
	switch what {
	case mongolease.Acquire, mongolease.TakeOver, mongolease.Wait, mongolease.Refresh:
		return filter
	}
	return without(filter, func(field string) bool { return strings.HasPrefix(field, "lock.") && field != "lock.saves" })
}

// savesInAnyOrder leaves saves that do not ask whether a later one was written.
func savesInAnyOrder(_ mongolease.Step, filter bson.D) bson.D {
	return without(filter, func(field string) bool { return field == "lock.saves" })
}

func without(filter bson.D, drop func(field string) bool) bson.D {
	return slices.DeleteFunc(slices.Clone(filter), func(e bson.E) bool { return drop(e.Key) })
}
