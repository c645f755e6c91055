package doclock

import (
	"context"
	"crypto/rand"
	"flag"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/store"
)

func needs(t testing.TB, capabilities ...string) {
	t.Helper()
	testserver.URI(t, capabilities...)
}

func can(capability string) bool { return testserver.Has(capability) }

func uriOf(t testing.TB) string {
	t.Helper()
	return testserver.URI(t)
}

// collection is a new collection on the server of the tests, dropped after the test.
func collection(t testing.TB, opts ...func(*options.ClientOptions)) *mongo.Collection {
	t.Helper()
	coll := testserver.Connect(t, testserver.URI(t), opts...).Database("doclock_test").Collection("docs_" + rand.Text()[:10])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = coll.Drop(ctx)
		_ = coll.Database().Collection(coll.Name() + ".wake").Drop(ctx)
	})
	return coll
}

// again is the same collection through another client.
func again(t testing.TB, coll *mongo.Collection, uri string, opts ...func(*options.ClientOptions)) *mongo.Collection {
	t.Helper()
	return testserver.Connect(t, uri, opts...).Database(coll.Database().Name()).Collection(coll.Name())
}

// An order is the document that most tests lock.
type order struct {
	ID    string `bson:"_id"`
	State string `bson:"state"`
	Total int    `bson:"total,omitempty"`
}

// locksOn makes Locks that are closed at the end of the test, with a short margin so
// that this takes no time.
func locksOn[T any](t testing.TB, coll *mongo.Collection, opts ...Option) *Locks[T] {
	t.Helper()
	quiet := []Option{WithLogger(slog.New(slog.DiscardHandler)), WithMargin(50 * time.Millisecond)}
	l, err := New[T](coll, append(quiet, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func put(t testing.TB, coll *mongo.Collection, docs ...any) {
	t.Helper()
	_, err := coll.InsertMany(t.Context(), docs)
	require.NoError(t, err)
}

func get(t testing.TB, coll *mongo.Collection, id any) bson.Raw {
	t.Helper()
	raw, err := coll.FindOne(context.Background(), ID(id)).Raw()
	require.NoError(t, err)
	return raw
}

// contents is all documents of a collection, a line each.
func contents(t testing.TB, coll *mongo.Collection) string {
	t.Helper()
	cursor, err := coll.Find(context.Background(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(t, err)
	var all []bson.Raw
	require.NoError(t, cursor.All(context.Background(), &all))
	var lines []string
	for _, raw := range all {
		lines = append(lines, raw.String())
	}
	return strings.Join(lines, "\n")
}

func must[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// offered is the notice that the release of a document sends to who comes next.
func offered[T any](d *Document[T], next store.Place) store.Notice {
	return store.Notice{Topic: store.TopicLocks, Key: d.lease.Key(), Kind: store.KindOffered, To: next.Address(), Place: next}
}

// holder is the one that a lock has; the zero value if it has none.
func (r record) holder() (h lease.Holder) {
	for _, h = range r.Holders {
	}
	return h
}

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait for time to pass more than they compute.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("8")
	}
	testserver.SkipExamples("^Example", "mongodb")
	testserver.SkipExamples("^ExampleDocument_SaveAndRelease$", "transactions")
	testchild.Main(m, testchild.Roles{"worker": testchild.As(workUntilKilled)})
}

// A replicaSet is a set in memory, for tests in virtual time.
type replicaSet struct{ *docset.Set }

func newReplicaSet(ahead time.Duration) *replicaSet { return &replicaSet{docset.New(ahead)} }

// collection is the collection that all tests on the set use, through a client of its own.
func (s *replicaSet) collection(t *testing.T) *mongo.Collection { return s.over(t, docset.None) }

// over is collection through a network that is in trouble.
func (s *replicaSet) over(t *testing.T, trouble docset.Trouble) *mongo.Collection {
	t.Helper()
	return s.Client(t, trouble).Database("d").Collection("orders")
}

// Each of these takes one safety out of the filters of a store, for the control of the
// tests that show what it is for.

// byKeyAlone leaves commands that do not name the acquisition.
func byKeyAlone(what lease.Step, filter bson.D) bson.D {
	switch what {
	case lease.Acquire, lease.TakeOver, lease.Wait, lease.Refresh:
		return filter
	}
	return without(filter, func(field string) bool { return strings.HasPrefix(field, "lock.") && field != "lock.saves" })
}

// savesInAnyOrder leaves saves that do not ask whether a later one was written.
func savesInAnyOrder(_ lease.Step, filter bson.D) bson.D {
	return without(filter, func(field string) bool { return field == "lock.saves" })
}

func without(filter bson.D, drop func(field string) bool) bson.D {
	return slices.DeleteFunc(slices.Clone(filter), func(e bson.E) bool { return drop(e.Key) })
}
