package doclock

import (
	"context"
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/store"
)

func needs(t testing.TB, capabilities ...string) {
	t.Helper()
	testserver.URI(t, capabilities...)
}

func can(capability string) bool { return testserver.Has(capability) }

// collection is a new one on the server of the tests, dropped after the test.
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

// again is the same collection by another client.
func again(t testing.TB, coll *mongo.Collection, uri string, opts ...func(*options.ClientOptions)) *mongo.Collection {
	t.Helper()
	return testserver.Connect(t, uri, opts...).Database(coll.Database().Name()).Collection(coll.Name())
}

// An order is what most tests lock.
type order struct {
	ID    string `bson:"_id"`
	State string `bson:"state"`
	Total int    `bson:"total,omitempty"`
}

// locksOn closes at the end of the test, and gives holders a short margin to stop then.
func locksOn[T any](t testing.TB, coll *mongo.Collection, opts ...Option) *Locks[T] {
	t.Helper()
	quiet := With(mongolock.WithLogger(slog.New(slog.DiscardHandler)), mongolock.WithMargin(50*time.Millisecond))
	l, err := New[T](coll, append([]Option{quiet}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func put(t testing.TB, coll *mongo.Collection, docs ...any) {
	t.Helper()
	if _, err := coll.InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, coll *mongo.Collection, id any) bson.Raw {
	t.Helper()
	raw, err := coll.FindOne(context.Background(), ID(id)).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func must[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// freed is the wake-up that a document's release sends.
func freed[T any](d *Document[T]) store.Notice {
	return store.Notice{Topic: store.TopicLocks, Key: d.lease.Key(), Kind: store.KindFreed}
}

func uriOf(t testing.TB) string {
	t.Helper()
	return testserver.URI(t)
}
