package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// A logBuffer collects the log lines of several goroutines.
type logBuffer struct{ lab.Text }

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// option makes a client log to this buffer.
func (l *logBuffer) option() mongolock.ClientOption { return mongolock.WithLogger(l.logger()) }

func (l *logBuffer) count(what string) int { return strings.Count(l.String(), what) }

func (l *logBuffer) lines() []string {
	return strings.FieldsFunc(l.String(), func(r rune) bool { return r == '\n' })
}

// newClientOn returns a client on a collection. It is silent and has a small margin, for which
// Close waits, unless an option says otherwise.
func newClientOn(t testing.TB, coll *mongo.Collection, opts ...mongolock.ClientOption) *mongolock.Client {
	t.Helper()
	quiet := []mongolock.ClientOption{mongolock.WithLogger(slog.New(slog.DiscardHandler)), mongolock.WithMargin(10 * time.Millisecond)}
	client, err := mongolock.New(coll, append(quiet, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newClient returns a client on a collection of its own.
func newClient(t testing.TB, opts ...mongolock.ClientOption) (*mongolock.Client, *mongo.Collection) {
	t.Helper()
	coll := testserver.Collection(t, testserver.Client(t))
	return newClientOn(t, coll, opts...), coll
}

// contextFor bounds a call that must succeed: d, and more on a busy machine.
func contextFor(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), pace.Of(d))
	t.Cleanup(cancel)
	return ctx
}

func tryAcquire(t testing.TB, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	t.Helper()
	lease, err := c.TryAcquire(contextFor(t, 30*time.Second), key, opts...)
	require.NoError(t, err, "acquire %q", key)
	return lease
}

// storedDocument returns the document under a key, whatever it is, or nil.
func storedDocument(t testing.TB, coll *mongo.Collection, key string) bson.Raw {
	t.Helper()
	raw, err := coll.FindOne(contextFor(t, 10*time.Second), bson.D{{Key: "_id", Value: key}}).Raw()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		t.Fatal(err)
	}
	return raw
}

func TestNewNamesANilCollectionAndEveryBadOptionAtOnce(t *testing.T) {
	t.Parallel()
	client, err := mongolock.New(nil, mongolock.TTL(-time.Second), mongolock.WithOwner(""))
	require.Nil(t, client, "New answered %v, %v", client, err)
	require.Error(t, err, "New")
	for _, want := range []string{"collection is nil", "TTL(-1s)", "WithOwner"} {
		assert.ErrorContains(t, err, want)
	}
}

// unreachableServers are servers that do not answer, each in another way.
func unreachableServers(t *testing.T) map[string]string {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() })
	var held sync.WaitGroup
	t.Cleanup(held.Wait) // after Close, as clean-ups run backwards
	t.Cleanup(func() { silent.Close() })
	held.Go(func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			held.Go(func() { _, _ = io.Copy(io.Discard, conn) })
		}
	})
	return map[string]string{
		"nobody listens":          "mongodb://127.0.0.1:1",
		"no such host":            "mongodb://no-such-host.invalid",
		"the server says nothing": "mongodb://" + silent.Addr().String(),
		"no such replica set":     "mongodb://127.0.0.1:1/?replicaSet=rs9",
	}
}

func TestAnUnreachableServerIsAClearErrorWithinTheCallersTime(t *testing.T) {
	t.Parallel()
	for name, uri := range unreachableServers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connected, err := mongo.Connect(options.Client().ApplyURI(uri))
			require.NoError(t, err)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = connected.Disconnect(ctx)
			})
			client := newClientOn(t, connected.Database("x").Collection("locks"))
			var calls sync.WaitGroup
			for call, do := range map[string]func(context.Context) error{
				"Acquire":     func(ctx context.Context) error { _, err := client.Acquire(ctx, "nightly"); return err },
				"TryAcquire":  func(ctx context.Context) error { _, err := client.TryAcquire(ctx, "nightly"); return err },
				"Inspect":     func(ctx context.Context) error { _, err := client.Inspect(ctx, "nightly"); return err },
				"Break":       func(ctx context.Context) error { _, err := client.Break(ctx, "nightly", "why", 0); return err },
				"EnsureIndex": client.EnsureIndex,
				"List": func(ctx context.Context) error {
					for _, err := range client.List(ctx, "nightly") {
						return err
					}
					return nil
				},
			} {
				calls.Go(func() {
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					err := do(ctx)
					took := time.Since(began)
					assert.GreaterOrEqual(t, took, 900*time.Millisecond, "%s: of a second", call)
					assert.LessOrEqual(t, took, time.Second+pace.Of(500*time.Millisecond), "%s: of a second", call)
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mongolock.ErrHeld) {
						t.Errorf("%s: %v", call, err)
						return
					}
					says := []string{"server selection", `"nightly"`}
					switch call {
					case "Acquire", "TryAcquire": // the claim is still under way
						says[0] = "the store has not answered"
					case "EnsureIndex":
						says[1] = "ensure index"
					}
					for _, want := range says {
						assert.ErrorContains(t, err, want, "%s does not say in one line", call)
						assert.NotContains(t, err.Error(), "\n", "%s: %q does not say %q in one line", call, err, want)
					}
				})
			}
			calls.Wait()
		})
	}
}

func TestAnUnreachableServerIsNamedToACallerWithoutADeadline(t *testing.T) {
	t.Parallel()
	connected, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetServerSelectionTimeout(300 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connected.Disconnect(context.Background()) })
	client := newClientOn(t, connected.Database("x").Collection("locks"))
	_, err = client.Acquire(t.Context(), "nightly")
	require.Error(t, err, "granted by nobody")
	for _, want := range []string{"acquire", `"nightly"`, "server selection", "127.0.0.1:1"} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "unknown, though nothing was sent")
}

// A foreignDocument is a document that this library did not write.
type foreignDocument struct {
	name string
	doc  bson.D // without its _id
	says string // what the error names
}

func foreignDocuments() []foreignDocument {
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	ours := func(mark any, expireAt any) bson.D {
		return bson.D{
			{Key: "mongolock", Value: mark}, {Key: "mode", Value: "exclusive"}, {Key: "limit", Value: 1},
			{Key: "holders", Value: bson.D{}}, {Key: "expireAt", Value: expireAt}, {Key: "rev", Value: int64(1)},
		}
	}
	all := []foreignDocument{
		{"nothing but a key", bson.D{}, "no field mongolock"},
		{"an order", bson.D{{Key: "total", Value: 12.5}, {Key: "lines", Value: bson.A{"a", "b"}}}, "no field mongolock"},
		{"our fields, no mark", ours(nil, past)[1:], "no field mongolock"},
		{"a lock of another library", bson.D{{Key: "owner", Value: "me"}, {Key: "expireAt", Value: past}}, "no field mongolock"},
		{"expireAt of arrays", bson.D{{Key: "expireAt", Value: bson.A{past, future}}}, "no field mongolock"},
	}
	for name, mark := range map[string]any{
		"two": 2, "a text": "1", "null": nil, "false": false, "true": true, "a half": 0.5, "minus one": int64(-1),
		"a document": bson.D{{Key: "version", Value: 1}}, "an empty array": bson.A{}, "an array": bson.A{2, "1", nil},
		"a date": future, "an ObjectID": bson.NewObjectID(), "binary": []byte{1}, "a regex": bson.Regex{Pattern: "1"},
	} {
		all = append(all,
			foreignDocument{"marked with " + name + ", run out", ours(mark, past), "mongolock: "},
			foreignDocument{"marked with " + name + ", in the future", ours(mark, future), "mongolock: "},
			foreignDocument{"marked with " + name + ", without end", bson.D{{Key: "mongolock", Value: mark}}, "mongolock: "})
	}
	return all
}

// everyCall makes each call of the API that names a key, and List, which does not.
func everyCall(t *testing.T, client *mongolock.Client, key string) map[string]error {
	t.Helper()
	answers := map[string]error{}
	ctx := contextFor(t, 10*time.Second)
	_, answers["TryAcquire"] = client.TryAcquire(ctx, key)
	_, answers["Acquire"] = client.Acquire(ctx, key)
	_, answers["Acquire with MinHold and Note"] = client.Acquire(ctx, key, mongolock.MinHold(time.Second), mongolock.Note("n"))
	answers["Do"] = mongolock.Do(ctx, client, key, func(context.Context, *mongolock.Lease) error {
		t.Error("ran without a lock")
		return nil
	})
	_, answers["Inspect"] = client.Inspect(ctx, key)
	_, answers["Break"] = client.Break(ctx, key, "why", 0)
	_, answers["Break with a grace"] = client.Break(ctx, key, "why", 10*time.Millisecond)
	for s, err := range client.List(ctx, "") {
		assert.NoError(t, err, "List")
		assert.NotEqual(t, key, s.Key, "List shows %+v", s)
	}
	return answers
}

func TestAForeignDocumentIsNamedAndNeverChanged(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t)
	for i, s := range foreignDocuments() {
		key := fmt.Sprint("k", i)
		_, err := coll.InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: key}}, s.doc...))
		require.NoError(t, err)
		before := storedDocument(t, coll, key)
		for call, err := range everyCall(t, client, key) {
			assert.ErrorIs(t, err, mongolock.ErrForeign, "%s: %s", s.name, call)
			assert.ErrorContains(t, err, s.says, "%s: %s", s.name, call)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "%s: %s", s.name, call)
		}
		after := storedDocument(t, coll, key)
		assert.True(t, bytes.Equal(before, after), "%s: changed to %v", s.name, after)
	}
}

// A document with the mark and without the shape was written by an unknown program, but says
// that it is ours. It is never granted while it might have a holder, and never removed.
func TestADamagedLockDocumentIsNamedAndKept(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t)
	future := time.Now().Add(time.Hour)
	for field, doc := range map[string]bson.D{
		"mode":     {{Key: "expireAt", Value: future}},
		"rev":      {{Key: "expireAt", Value: future}, {Key: "mode", Value: "exclusive"}, {Key: "rev", Value: "7"}},
		"expireAt": {{Key: "mode", Value: "exclusive"}, {Key: "rev", Value: int64(1)}, {Key: "expireAt", Value: "soon"}, {Key: "holders", Value: bson.D{}}},
		"holders":  {{Key: "expireAt", Value: future}, {Key: "mode", Value: "exclusive"}, {Key: "rev", Value: int64(1)}, {Key: "holders", Value: bson.A{}}},
	} {
		key := "k-" + field
		_, err := coll.InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: key}, {Key: "mongolock", Value: 1}}, doc...))
		require.NoError(t, err)
		for call, err := range everyCall(t, client, key) {
			assert.ErrorIs(t, err, mongolock.ErrForeign, "%s: %s", field, call)
			assert.ErrorContains(t, err, "but "+field+" is", "%s: %s", field, call)
		}
		after := storedDocument(t, coll, key)
		for _, e := range doc {
			want, err := bson.Marshal(bson.D{e})
			require.NoError(t, err)
			assert.True(t, after.Lookup(e.Key).Equal(bson.Raw(want).Lookup(e.Key)), "%s: %s became %v", field, e.Key, after.Lookup(e.Key))
		}
	}
}

// A conflicting index is named in the log and by EnsureIndex. Locks work without the index.
func TestAConflictingIndexIsLoggedOnceAndBreaksNothing(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl")
	for name, index := range map[string]mongo.IndexModel{
		"the same name, no TTL":       {Keys: bson.D{{Key: "expireAt", Value: 1}}, Options: options.Index().SetName("mongolock_expireAt")},
		"the same name, another TTL":  {Keys: bson.D{{Key: "expireAt", Value: 1}}, Options: options.Index().SetName("mongolock_expireAt").SetExpireAfterSeconds(60).SetPartialFilterExpression(bson.D{{Key: "mongolock", Value: 1}})},
		"the same name, other fields": {Keys: bson.D{{Key: "owner", Value: 1}}, Options: options.Index().SetName("mongolock_expireAt")},
	} {
		t.Run(name, func(t *testing.T) {
			log := &logBuffer{}
			coll := testserver.Collection(t, testserver.Client(t))
			_, err := coll.Indexes().CreateOne(t.Context(), index)
			require.NoError(t, err)
			client := newClientOn(t, coll, mongolock.WithLogger(log.logger()))
			tryAcquire(t, client, "k")
			tryAcquire(t, client, "j")
			lines := log.lines()
			require.Len(t, lines, 1, "logged")
			assert.Contains(t, lines[0], "no TTL index", "logged %q", lines)
			assert.Contains(t, lines[0], "level=WARN", "logged %q", lines)
			assert.ErrorContains(t, client.EnsureIndex(t.Context()), "ensure index", "EnsureIndex")
		})
	}
}

func TestAnotherIndexOnTheSameFieldIsLeftAlone(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl")
	log := &logBuffer{}
	coll := testserver.Collection(t, testserver.Client(t))
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "expireAt", Value: 1}}})
	require.NoError(t, err)
	client := newClientOn(t, coll, mongolock.WithLogger(log.logger()))
	tryAcquire(t, client, "k")
	err = client.EnsureIndex(t.Context()) // before 5.0 a server has only one index on a field
	failed, logged := err != nil, len(log.lines()) > 0
	assert.Equal(t, logged, failed, "EnsureIndex: %v; logged %q", err, log.lines())
	specs, err := coll.Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(specs, func(s mongo.IndexSpecification) bool { return s.Name == "expireAt_1" && s.ExpireAfterSeconds == nil }), "somebody's index became one of %+v", specs)
}

func TestACollectionThatCannotHoldLocksIsAClearError(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl") // servers without it do not have such collections either
	for kind, opts := range map[string]bson.D{
		"view":        {{Key: "viewOn", Value: "others"}, {Key: "pipeline", Value: bson.A{}}},
		"time-series": {{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "at"}}}},
	} {
		t.Run(kind, func(t *testing.T) {
			if kind == "time-series" {
				testserver.Need(t, "timeseries") // since MongoDB 5.0
			}
			coll := testserver.Collection(t, testserver.Client(t))
			require.NoError(t, coll.Database().RunCommand(t.Context(), append(bson.D{{Key: "create", Value: coll.Name()}}, opts...)).Err())
			client := newClientOn(t, coll)
			for range 2 {
				lease, err := client.TryAcquire(contextFor(t, 10*time.Second), "k")
				assert.Nil(t, lease, "%v, %v", lease, err)
				assert.ErrorContains(t, err, kind)
				assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
			}
			assert.ErrorContains(t, client.EnsureIndex(contextFor(t, 10*time.Second)), kind, "EnsureIndex")
		})
	}
}

func TestDisconnectBeforeCloseIsBoundedAndNamesTheKeysThatAreLeft(t *testing.T) {
	t.Parallel()
	connected := testserver.Client(t)
	coll := testserver.Collection(t, testserver.Client(t))
	client := newClientOn(t, connected.Database(coll.Database().Name()).Collection(coll.Name()), mongolock.WithMargin(100*time.Millisecond))
	lease := tryAcquire(t, client, "left", mongolock.TTL(10*time.Second))
	require.NoError(t, connected.Disconnect(t.Context()))
	began := time.Now()
	err := client.Close()
	assert.LessOrEqual(t, time.Since(began), 6*time.Second, "Close")
	assert.ErrorContains(t, err, `"left"`, "Close")
	assert.ErrorIs(t, err, mongo.ErrClientDisconnected, "Close")
	assert.ErrorIs(t, lease.Err(), mongolock.ErrClosed, "the lease")
	assert.NotNil(t, storedDocument(t, coll, "left"), "gone: then the advice to close first is needless")
}

func TestCallsAfterDisconnectSayThatTheClientIsDisconnected(t *testing.T) {
	t.Parallel()
	connected := testserver.Client(t)
	coll := testserver.Collection(t, testserver.Client(t)) // to drop it
	client := newClientOn(t, connected.Database(coll.Database().Name()).Collection(coll.Name()))
	require.NoError(t, tryAcquire(t, client, "used").Release())
	require.NoError(t, connected.Disconnect(t.Context()))
	for call, do := range map[string]func() error{
		"Acquire":     func() error { _, err := client.Acquire(t.Context(), "k"); return err },
		"TryAcquire":  func() error { _, err := client.TryAcquire(t.Context(), "k"); return err },
		"Inspect":     func() error { _, err := client.Inspect(t.Context(), "k"); return err },
		"EnsureIndex": func() error { return client.EnsureIndex(t.Context()) },
	} {
		began := time.Now()
		err := do()
		assert.ErrorIs(t, err, mongo.ErrClientDisconnected, "%s after %v", call, time.Since(began))
		assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "%s after %v", call, time.Since(began))
		assert.LessOrEqual(t, time.Since(began), time.Second, "%s after %v: %v", call, time.Since(began), err)
	}
	began := time.Now()
	err := client.Close()
	assert.NoError(t, err, "nothing was held; Close after %v", time.Since(began))
	assert.LessOrEqual(t, time.Since(began), time.Second, "Close, with nothing held")
}

// A capped collection would accept the claim, and drop it when it is full. Before MongoDB 5.0
// the claim could not be removed from it either, so it is asked before anything is written.
func TestACappedCollectionIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "capped")
	tap := &testserver.Tap{}
	coll := testserver.Collection(t, testserver.Client(t, tap.On))
	err := coll.Database().CreateCollection(t.Context(), coll.Name(), options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<20))
	require.NoError(t, err)
	client := newClientOn(t, coll)
	for _, client := range []*mongolock.Client{client, newClientOn(t, coll, mongolock.WithoutIndex())} {
		for range 2 {
			tap.Take()
			lease, err := client.TryAcquire(contextFor(t, 10*time.Second), "k")
			assert.Nil(t, lease, "%v, %v", lease, err)
			assert.ErrorContains(t, err, coll.Name()+" is capped")
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
			assert.Equal(t, []string{"listCollections"}, tap.TakeNames())
			assert.Nil(t, storedDocument(t, coll, "k"), "left behind")
		}
	}
	assert.ErrorContains(t, client.EnsureIndex(contextFor(t, 10*time.Second)), "is capped", "EnsureIndex")
	require.NoError(t, coll.Drop(t.Context()))
	tryAcquire(t, client, "k") // mended
}
