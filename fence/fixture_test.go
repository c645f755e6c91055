package fence_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func TestMain(m *testing.M) {
	testserver.SkipExamples("^Example", "mongodb")
	os.Exit(m.Run())
}

// server is the address of one that has what the test wants. Concurrent writers want
// "atomic": a server that applies a filter and its update as one step. No other can
// fence them.
func server(t *testing.T, wants ...string) string {
	t.Helper()
	return testserver.URI(t, wants...)
}

// sent counts the commands of a client.
type sent struct{ n atomic.Int64 }

func (s *sent) during(f func()) int {
	before := s.n.Load()
	f()
	return int(s.n.Load() - before)
}

func collection(t *testing.T, uri string, more ...*options.ClientOptions) (*mongo.Collection, *sent) {
	t.Helper()
	count := new(sent)
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName != "endSessions" && e.CommandName != "dropDatabase" {
			count.n.Add(1)
		}
	}}
	client, err := mongo.Connect(append([]*options.ClientOptions{options.Client().ApplyURI(uri).SetMonitor(monitor)}, more...)...)
	require.NoError(t, err)
	db := client.Database("fence_" + bson.NewObjectID().Hex())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = db.Drop(ctx)
		_ = client.Disconnect(ctx)
	})
	return db.Collection("things"), count
}

func d(pairs ...any) bson.D {
	doc := bson.D{}
	for i := 0; i < len(pairs); i += 2 {
		doc = append(doc, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return doc
}

func set(key string, value any) bson.D { return d("$set", d(key, value)) }

var byX = d("_id", "x")

// put stores a document without this package.
func put(t *testing.T, coll *mongo.Collection, doc any) {
	t.Helper()
	_, err := coll.InsertOne(t.Context(), doc)
	require.NoError(t, err)
}

func remove(t *testing.T, coll *mongo.Collection, filter any) {
	t.Helper()
	_, err := coll.DeleteMany(t.Context(), filter)
	require.NoError(t, err)
}

func get(t *testing.T, coll *mongo.Collection) bson.M {
	t.Helper()
	var doc bson.M
	require.NoError(t, coll.FindOne(t.Context(), byX).Decode(&doc))
	return doc
}

// holds checks the values of some fields of the document x.
func holds(t *testing.T, coll *mongo.Collection, want bson.M) {
	t.Helper()
	doc := get(t, coll)
	for field, value := range want {
		assert.Equal(t, value, doc[field], "%s of %v", field, doc)
	}
}

func refused(t *testing.T, err error, token, newer int64) {
	t.Helper()
	var fenced *fence.Error
	require.ErrorAs(t, err, &fenced)
	require.ErrorIs(t, err, fence.ErrFenced)
	assert.Equal(t, &fence.Error{Token: token, Newer: newer}, fenced)
}

// isDuplicate checks that err is a duplicate key and no refusal.
func isDuplicate(t *testing.T, err error) {
	t.Helper()
	assert.True(t, mongo.IsDuplicateKeyError(err), "not a duplicate key: %v", err)
	assert.NotErrorIs(t, err, fence.ErrFenced)
}

// A writer is one way to write: it stores v in the document x.
type writer func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.UpsertOption) (*mongo.UpdateResult, error)

var writers = map[string]writer{
	"UpdateOne": func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.UpsertOption) (*mongo.UpdateResult, error) {
		return fence.UpdateOne(ctx, coll, token, byX, set("v", v), updating(opts)...)
	},
	"UpdateOne, pipeline": func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.UpsertOption) (*mongo.UpdateResult, error) {
		return fence.UpdateOne(ctx, coll, token, byX, mongo.Pipeline{set("v", v)}, updating(opts)...)
	},
	"UpdateByID": func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.UpsertOption) (*mongo.UpdateResult, error) {
		return fence.UpdateByID(ctx, coll, token, "x", set("v", v), updating(opts)...)
	},
	"ReplaceOne": func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.UpsertOption) (*mongo.UpdateResult, error) {
		return fence.ReplaceOne(ctx, coll, token, byX, d("v", v), replacing(opts)...)
	},
}

func updating(opts []fence.UpsertOption) (all []fence.UpdateOption) {
	for _, o := range opts {
		all = append(all, o)
	}
	return all
}

func replacing(opts []fence.UpsertOption) (all []fence.ReplaceOption) {
	for _, o := range opts {
		all = append(all, o)
	}
	return all
}

// skipUnlessSupported skips a subtest of that name if the server lacks what it needs.
func skipUnlessSupported(t *testing.T, name string) {
	t.Helper()
	if strings.Contains(name, "ipeline") || name == "$expr" {
		server(t, "expressions")
	}
}

func onEachWriter(t *testing.T, test func(t *testing.T, write writer, coll *mongo.Collection, count *sent)) {
	uri := server(t)
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			skipUnlessSupported(t, name)
			coll, count := collection(t, uri)
			test(t, write, coll, count)
		})
	}
}
