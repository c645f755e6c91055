package mongostore

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/store"
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

// mongoColl is a new collection, dropped after the test.
func mongoColl(t testing.TB, client *mongo.Client) *mongo.Collection {
	t.Helper()
	coll := client.Database("mongolock_test").Collection("locks_" + rand.Text()[:10])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = coll.Drop(ctx)
		_ = client.Database("mongolock_test").Collection(coll.Name() + feedSuffix).Drop(ctx)
	})
	return coll
}

// A mongoBench is a store on a collection of its own, with a tap on its wire and a
// second, untapped hand on its documents.
type mongoBench struct {
	t     testing.TB
	store *Store
	coll  *mongo.Collection // not tapped
	tap   *testserver.Tap
}

// mongoBenchFor is for what is said of a server's answers in detail; the embedded
// server, which answers one command at a time and without operationTime, has others.
func mongoBenchFor(t testing.TB, opts ...func(*options.ClientOptions)) *mongoBench {
	t.Helper()
	mongoNeeds(t, "atomic")
	return mongoBenchOnAny(t, opts...)
}

func mongoBenchOnAny(t testing.TB, opts ...func(*options.ClientOptions)) *mongoBench {
	t.Helper()
	b := &mongoBench{t: t, tap: &testserver.Tap{}}
	b.coll = mongoColl(t, mongoClient(t))
	b.store = b.another(append(opts, b.tap.On)...)
	return b
}

// another is a second process's store on the same collection.
func (b *mongoBench) another(opts ...func(*options.ClientOptions)) *Store {
	b.t.Helper()
	client := mongoClient(b.t, opts...)
	return open(client.Database(b.coll.Database().Name()).Collection(b.coll.Name()),
		config{noIndex: true, logger: slog.New(slog.DiscardHandler)})
}

func (b *mongoBench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	b.t.Cleanup(cancel)
	return ctx
}

func mongoAsk(key string, ttl time.Duration) store.Claim {
	return store.Claim{
		Ref:   store.Ref{Key: key, ID: rand.Text(), Mode: store.Exclusive},
		Limit: 1, TTL: ttl, Owner: "owner", Note: "note",
	}
}

// acquire takes the key, which must be free.
func (b *mongoBench) acquire(s *Store, c store.Claim) store.Grant {
	b.t.Helper()
	g, err := s.Acquire(b.ctx(), c)
	if err != nil {
		b.t.Fatalf("acquire %q: %v", c.Key, err)
	}
	return g
}

func (b *mongoBench) document(key string) record {
	b.t.Helper()
	raw, err := b.coll.FindOne(b.ctx(), bson.D{{Key: "_id", Value: key}}).Raw()
	if err != nil {
		b.t.Fatalf("document %q: %v", key, err)
	}
	return readRecord(raw)
}

func (b *mongoBench) absent(key string) bool {
	b.t.Helper()
	n, err := b.coll.CountDocuments(b.ctx(), bson.D{{Key: "_id", Value: key}})
	if err != nil {
		b.t.Fatal(err)
	}
	return n == 0
}

// expire sets a holder's end to the past, as if its TTL had run out.
func (b *mongoBench) expire(r store.Ref, ago time.Duration) {
	b.t.Helper()
	past := time.Now().Add(-ago)
	_, err := b.coll.UpdateOne(b.ctx(), bson.D{{Key: "_id", Value: r.Key}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: past}, {Key: "holders." + r.ID + ".expireAt", Value: past}}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// mongoShow renders commands for comparison: what the store sent, without what the
// driver adds, and with IDs, dates and revisions named by kind.
func mongoShow(commands []bson.Raw, names ...string) string {
	var lines []string
	for _, c := range commands {
		var b strings.Builder
		elements, _ := c.Elements()
		for i, e := range elements {
			switch key := e.Key(); {
			case i == 0 && e.Value().Type == bson.TypeString:
				b.WriteString(key)
			case strings.HasPrefix(key, "$"), key == "lsid", key == "txnNumber", key == "maxTimeMS", key == "ordered" && e.Value().Boolean():
			case key == "apiVersion", key == "apiStrict":
			default:
				fmt.Fprintf(&b, " %s: %s", key, mongoShowValue(e.Value(), names))
			}
		}
		lines = append(lines, strings.TrimSpace(b.String()))
	}
	return strings.Join(lines, "\n")
}

func mongoShowValue(v bson.RawValue, names []string) string {
	switch v.Type {
	case bson.TypeDateTime:
		return "DATE"
	case bson.TypeObjectID:
		return "REV"
	case bson.TypeString:
		return mongoNamed(v.StringValue(), names)
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		elements, _ := bson.Raw(v.Value).Elements()
		var parts []string
		for _, e := range elements {
			part := mongoShowValue(e.Value(), names)
			if v.Type == bson.TypeEmbeddedDocument {
				part = mongoNamed(e.Key(), names) + ": " + part
			}
			parts = append(parts, part)
		}
		if v.Type == bson.TypeArray {
			return "[" + strings.Join(parts, ", ") + "]"
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	s := v.String()
	for _, wrap := range []string{`{"$numberInt":"`, `{"$numberLong":"`} {
		if rest, ok := strings.CutPrefix(s, wrap); ok {
			return strings.TrimSuffix(rest, `"}`)
		}
	}
	return s
}

// mongoNamed puts ID, ID2, … in the place of the names.
func mongoNamed(s string, names []string) string {
	for i, name := range names {
		label := "ID"
		if i > 0 {
			label = fmt.Sprintf("ID%d", i+1)
		}
		s = strings.ReplaceAll(s, name, label)
	}
	return s
}
