package once_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/once"
)

// Work that is done is never done again because somebody has spoiled its record: every call says so, or knows better.
func TestASpoiledRecordRunsNothingAgain(t *testing.T) {
	bad := []any{nil, true, -1, 1.5, math.NaN(), 1e300, "x", bson.A{}, bson.A{nil}, bson.A{bson.D{}}, bson.D{}, bson.D{{Key: "a", Value: 1}}, bson.DateTime(0)}
	for _, field := range []string{"once", "done", "runs", "past", "lock", "number", "token", "outcome", "began", "ended"} {
		for _, value := range bad {
			inVirtualTime(t, func(t *testing.T, w *world) {
				require.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(0)))
				var record bson.M
				require.NoError(t, w.calm().FindOne(t.Context(), bson.D{{Key: "_id", Value: name}}).Decode(&record))
				if run := record["past"].(bson.A)[0].(bson.D); slices.ContainsFunc(run, func(e bson.E) bool { return e.Key == field }) {
					record["past"] = bson.A{append(slices.DeleteFunc(run, func(e bson.E) bool { return e.Key == field }), bson.E{Key: field, Value: value})}
				} else {
					record[field] = value
				}
				_, err := w.calm().ReplaceOne(t.Context(), bson.D{{Key: "_id", Value: name}}, record)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				known := func(call string, err error) {
					if err != nil {
						assert.ErrorIs(t, err, mongolock.ErrForeign, "%s with %s: %v", call, field, value)
					}
				}
				known("Do", w.do(ctx, "pod-2", docset.None, takes(0)))
				known("TryDo", w.tryDo(ctx, "pod-2", docset.None, takes(0)))
				_, err = once.Look(ctx, w.calm(), name)
				known("Look", err)
				for _, err := range once.List(ctx, w.calm()) {
					known("List", err)
				}
				known("Reset", once.Reset(ctx, w.calm(), name, "to see"))
				assert.Equal(t, []string{"pod-1"}, w.runs, "%s: %v", field, value)
			})
		}
	}
}
