package mongostore

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/store"
)

// inMemory is a collection on a server in the process, made with some options.
func inMemory(t *testing.T, opts ...bson.E) *mongo.Collection {
	t.Helper()
	return tapped(t, &testserver.Tap{}, opts...)
}

// tapped is inMemory with the commands noted.
func tapped(t *testing.T, tap *testserver.Tap, opts ...bson.E) *mongo.Collection {
	t.Helper()
	db := memmongo.New().Client(t, tap.On).Database("d")
	require.NoError(t, db.RunCommand(t.Context(), append(bson.D{{Key: "create", Value: "locks"}}, opts...)).Err())
	return db.Collection("locks")
}

var unfits = map[string][]bson.E{
	"is capped":                   {{Key: "capped", Value: true}, {Key: "size", Value: 1 << 20}},
	"is a view":                   {{Key: "viewOn", Value: "others"}, {Key: "pipeline", Value: bson.A{}}},
	"is a time-series collection": {{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "at"}}}},
}

func TestACollectionThatCannotHoldLocksIsRefusedByNameBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	for why, opts := range unfits {
		tap := &testserver.Tap{}
		s := open(tapped(t, tap, opts...), config{logger: slog.New(slog.DiscardHandler)})
		tap.Take()
		for range 2 {
			_, err := s.Acquire(t.Context(), exclusiveClaim("k", time.Minute))
			assert.ErrorContains(t, err, "d.locks "+why)
			assert.ErrorIs(t, err, store.ErrNotApplied, why)
		}
		assert.ErrorContains(t, s.EnsureIndex(t.Context()), why)
		for _, sent := range tap.TakeNames() {
			assert.NotContains(t, []string{"findAndModify", "insert", "createIndexes"}, sent, why)
		}
	}
}

// Without the right to look at the collection the server's own answer has to be certain.
func TestTheRefusalOfAViewAndOfATimeSeriesIsCertain(t *testing.T) {
	t.Parallel()
	for why, opts := range unfits {
		if why == "is capped" {
			continue // it takes the claim
		}
		s := open(inMemory(t, opts...), config{logger: slog.New(slog.DiscardHandler)})
		s.fit.Store(true)
		_, err := s.Acquire(t.Context(), exclusiveClaim("k", time.Minute))
		assert.ErrorIs(t, err, store.ErrNotApplied, why)
	}
}
