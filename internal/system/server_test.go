package system

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/testserver"
)

// mongoNeeds skips a test that needs what the server here does not have.
func mongoNeeds(t testing.TB, capabilities ...string) {
	t.Helper()
	testserver.URI(t, capabilities...)
}

// mongoCan reports whether the server of the tests has that capability.
func mongoCan(capability string) bool { return testserver.Has(capability) }

// mongoClient connects to the server of the tests.
func mongoClient(t testing.TB, opts ...func(*options.ClientOptions)) *mongo.Client {
	t.Helper()
	return testserver.Connect(t, testserver.URI(t), opts...)
}

// mongoColl is a new collection, dropped after the test with its wake-ups.
func mongoColl(t testing.TB, client *mongo.Client) *mongo.Collection {
	t.Helper()
	coll := client.Database("mongolock_test").Collection("locks_" + rand.Text()[:10])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = coll.Drop(ctx)
		_ = coll.Database().Collection(coll.Name() + ".wake").Drop(ctx)
	})
	return coll
}
