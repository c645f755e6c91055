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

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// A fixture is a store on a collection of its own, with a tap on its commands and an untapped
// way to its documents.
type fixture struct {
	t     testing.TB
	store *Store
	coll  *mongo.Collection // not tapped
	tap   *testserver.Tap
}

// newFixture is for claims about a server's answers in detail. The embedded server, which
// answers one command at a time and without operationTime, gives other answers.
func newFixture(t testing.TB, opts ...func(*options.ClientOptions)) *fixture {
	t.Helper()
	testserver.Need(t, "atomic")
	return newFixtureOnAny(t, opts...)
}

func newFixtureOnAny(t testing.TB, opts ...func(*options.ClientOptions)) *fixture {
	t.Helper()
	f := &fixture{t: t, tap: &testserver.Tap{}}
	f.coll = testserver.Collection(t, testserver.Client(t))
	f.store = f.another(append(opts, f.tap.On)...)
	return f
}

// another returns a second process's store on the same collection.
func (f *fixture) another(opts ...func(*options.ClientOptions)) *Store {
	f.t.Helper()
	client := testserver.Client(f.t, opts...)
	return open(client.Database(f.coll.Database().Name()).Collection(f.coll.Name()),
		config{noIndex: true, logger: slog.New(slog.DiscardHandler)})
}

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	f.t.Cleanup(cancel)
	return ctx
}

func exclusiveClaim(key string, ttl time.Duration) store.Claim {
	return store.Claim{
		Ref:   store.Ref{Key: key, ID: rand.Text(), Mode: store.Exclusive},
		Limit: 1, TTL: ttl, Owner: "owner", Note: "note",
	}
}

// acquire takes the key, which must be free.
func (f *fixture) acquire(s *Store, c store.Claim) store.Grant {
	f.t.Helper()
	g, err := s.Acquire(f.ctx(), c)
	require.NoError(f.t, err, "acquire %q", c.Key)
	return g
}

// released releases one holder.
func released(ctx context.Context, s *Store, r store.Ref, keep time.Duration) error {
	_, err := s.Release(ctx, store.ReleaseRequest{Ref: r, Keep: keep})
	return err
}

// waits claims a key for one who waits, and is refused.
func (f *fixture) waits(s *Store, c store.Claim) store.Claim {
	f.t.Helper()
	if c.Place == "" {
		c.Place = store.NewPlace(c.Mode, c.Limit, 1, "here")
	}
	f.held(s, c)
	return c
}

// anew is the waiter's next claim.
func anew(c store.Claim) store.Claim {
	c.ID = rand.Text()
	return c
}

func (f *fixture) document(key string) lease.Document {
	f.t.Helper()
	raw, err := f.coll.FindOne(f.ctx(), bson.D{{Key: "_id", Value: key}}).Raw()
	require.NoError(f.t, err, "document %q", key)
	return layout.Read(raw)
}

// end is the end of a document, which the TTL index goes by.
func (f *fixture) end(key string) time.Time {
	f.t.Helper()
	raw, err := f.coll.FindOne(f.ctx(), bson.D{{Key: "_id", Value: key}}).Raw()
	require.NoError(f.t, err, "document %q", key)
	return raw.Lookup(fieldExpireAt).Time()
}

func (f *fixture) absent(key string) bool {
	f.t.Helper()
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{{Key: "_id", Value: key}})
	require.NoError(f.t, err)
	return n == 0
}

// expire sets a holder's end to the past, as if its TTL had run out.
func (f *fixture) expire(r store.Ref, ago time.Duration) {
	f.t.Helper()
	past := time.Now().Add(-ago)
	_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: r.Key}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: past}, {Key: "holders." + r.ID + ".expireAt", Value: past}}}})
	require.NoError(f.t, err)
}

// rendered shows commands for comparison: what the store sent, without what the driver adds,
// and with dates and revisions named by kind.
func rendered(commands []bson.Raw) (lines []string) {
	for _, c := range commands {
		var b strings.Builder
		elements, _ := c.Elements()
		for i, e := range elements {
			switch key := e.Key(); {
			case elements[0].Key() == "listCollections": // names a collection of the test
				b.Reset()
				b.WriteString("listCollections")
			case i == 0 && e.Value().Type == bson.TypeString:
				b.WriteString(key)
			case strings.HasPrefix(key, "$"), key == "lsid", key == "txnNumber", key == "maxTimeMS", key == "ordered" && e.Value().Boolean():
			case key == "apiVersion", key == "apiStrict":
			default:
				fmt.Fprintf(&b, " %s: %s", key, renderedValue(e.Value()))
			}
		}
		lines = append(lines, strings.TrimSpace(b.String()))
	}
	return lines
}

func renderedValue(v bson.RawValue) string {
	switch v.Type {
	case bson.TypeDateTime:
		return "DATE"
	case bson.TypeObjectID:
		return "EPOCH"
	case bson.TypeString:
		return v.StringValue()
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		elements, _ := bson.Raw(v.Value).Elements()
		var parts []string
		for _, e := range elements {
			part := renderedValue(e.Value())
			if strings.HasSuffix(e.Key(), "ttl") {
				part = "MS"
			}
			if n, is := e.Value().AsInt64OK(); is && e.Key() == fieldRev && n > 1 {
				part = "REV"
			}
			if v.Type == bson.TypeEmbeddedDocument {
				part = e.Key() + ": " + part
			}
			parts = append(parts, part)
		}
		if v.Type == bson.TypeArray {
			return "[" + strings.Join(parts, ", ") + "]"
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	if n, ok := v.Int64OK(); ok && n > 1e9 { // a beat, or a revision in an array
		return "BEAT"
	}
	s := v.String()
	for _, wrap := range []string{`{"$numberInt":"`, `{"$numberLong":"`} {
		if rest, ok := strings.CutPrefix(s, wrap); ok {
			return strings.TrimSuffix(rest, `"}`)
		}
	}
	return s
}
