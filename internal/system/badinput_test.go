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

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testserver"
)

// A logbook takes log lines from several goroutines.
type logBuffer struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// option makes a client log here.
func (l *logBuffer) option() mongolock.ClientOption { return mongolock.WithLogger(l.logger()) }

func (l *logBuffer) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func (l *logBuffer) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.FieldsFunc(l.text.String(), func(r rune) bool { return r == '\n' })
}

// locksIn is a client on a collection, silent and with a small margin (Close waits for
// that) unless an option says otherwise.
func newClientOn(t testing.TB, coll *mongo.Collection, opts ...mongolock.ClientOption) *mongolock.Client {
	t.Helper()
	quiet := []mongolock.ClientOption{mongolock.WithLogger(slog.New(slog.DiscardHandler)), mongolock.WithMargin(10 * time.Millisecond)}
	client, err := mongolock.New(coll, append(quiet, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newLocks is a client on a collection of its own.
func newClient(t testing.TB, opts ...mongolock.ClientOption) (*mongolock.Client, *mongo.Collection) {
	t.Helper()
	coll := testserver.Collection(t, testserver.Client(t))
	return newClientOn(t, coll, opts...), coll
}

func contextFor(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func tryAcquire(t testing.TB, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	t.Helper()
	lease, err := c.TryAcquire(contextFor(t, 10*time.Second), key, opts...)
	if err != nil {
		t.Fatalf("take %q: %v", key, err)
	}
	return lease
}

// stored is the document under a key, whatever it is; nil if there is none.
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
	if client != nil || err == nil {
		t.Fatalf("New answered %v, %v", client, err)
	}
	for _, want := range []string{"collection is nil", "TTL(-1s)", "WithOwner"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// nowhere are servers that do not answer, each in another way.
func unreachableServers(t *testing.T) map[string]string {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
		"nobody listens":        "mongodb://127.0.0.1:1",
		"no such host":          "mongodb://no-such-host.invalid",
		"somebody says nothing": "mongodb://" + silent.Addr().String(),
		"no such replica set":   "mongodb://127.0.0.1:1/?replicaSet=rs9",
	}
}

func TestAnUnreachableServerIsAClearErrorWithinTheCallersTime(t *testing.T) {
	t.Parallel()
	for name, uri := range unreachableServers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connected, err := mongo.Connect(options.Client().ApplyURI(uri))
			if err != nil {
				t.Fatal(err)
			}
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
					err := do(contextFor(t, time.Second))
					if took := time.Since(began); took < 900*time.Millisecond || took > 1500*time.Millisecond {
						t.Errorf("%s took %v of a second", call, took)
					}
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mongolock.ErrHeld) {
						t.Errorf("%s: %v", call, err)
						return
					}
					says := []string{"server selection", `"nightly"`}
					switch call {
					case "Acquire", "TryAcquire": // the claim is still on its way: nobody knows more yet
						says[0] = "the store has not answered"
					case "EnsureIndex":
						says[1] = "ensure index"
					}
					for _, want := range says {
						if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
							t.Errorf("%s: %q does not say %q in one line", call, err, want)
						}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connected.Disconnect(context.Background()) })
	client := newClientOn(t, connected.Database("x").Collection("locks"))
	_, err = client.Acquire(t.Context(), "nightly")
	if err == nil {
		t.Fatal("granted by nobody")
	}
	for _, want := range []string{"acquire", `"nightly"`, "server selection", "127.0.0.1:1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if errors.Is(err, mongolock.ErrOutcomeUnknown) {
		t.Errorf("unknown, though nothing was sent: %v", err)
	}
}

// A stranger is a document that somebody else put into the collection.
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
			{Key: "holders", Value: bson.D{}}, {Key: "expireAt", Value: expireAt}, {Key: "rev", Value: bson.NewObjectID()},
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

// everyCall makes each call of the API that names a key, and one that does not.
func everyCall(t *testing.T, client *mongolock.Client, key string) map[string]error {
	t.Helper()
	answers := map[string]error{}
	ctx := contextFor(t, 10*time.Second)
	_, answers["TryAcquire"] = client.TryAcquire(ctx, key)
	_, answers["Acquire"] = client.Acquire(ctx, key)
	_, answers["Acquire with MinHold and Note"] = client.Acquire(ctx, key, mongolock.MinHold(time.Second), mongolock.Note("n"))
	answers["Do"] = mongolock.Do(ctx, client, key, func(context.Context, *mongolock.Lease) error {
		t.Error("ran under a lock that is none")
		return nil
	})
	_, answers["Inspect"] = client.Inspect(ctx, key)
	_, answers["Break"] = client.Break(ctx, key, "why", 0)
	_, answers["Break with a grace"] = client.Break(ctx, key, "why", 10*time.Millisecond)
	for s, err := range client.List(ctx, "") {
		if err != nil {
			t.Error("List:", err)
		}
		if s.Key == key {
			t.Errorf("List shows %+v", s)
		}
	}
	return answers
}

func TestAForeignDocumentIsNamedAndNeverChanged(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t)
	for i, s := range foreignDocuments() {
		key := fmt.Sprint("k", i)
		if _, err := coll.InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: key}}, s.doc...)); err != nil {
			t.Fatal(err)
		}
		before := storedDocument(t, coll, key)
		for call, err := range everyCall(t, client, key) {
			if !errors.Is(err, mongolock.ErrForeign) || !strings.Contains(err.Error(), s.says) || errors.Is(err, mongolock.ErrOutcomeUnknown) {
				t.Errorf("%s: %s: %v", s.name, call, err)
			}
		}
		if after := storedDocument(t, coll, key); !bytes.Equal(before, after) {
			t.Errorf("%s: changed to %v", s.name, after)
		}
	}
}

// What has the mark and not the shape nobody of us wrote, but it says it is ours:
// it is never granted while it might be somebody's, nor removed.
func TestADamagedLockDocumentIsNamedAndKept(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t)
	future := time.Now().Add(time.Hour)
	for field, doc := range map[string]bson.D{
		"mode":     {{Key: "expireAt", Value: future}},
		"rev":      {{Key: "expireAt", Value: future}, {Key: "mode", Value: "exclusive"}, {Key: "rev", Value: "7"}},
		"expireAt": {{Key: "mode", Value: "exclusive"}, {Key: "rev", Value: bson.NewObjectID()}, {Key: "expireAt", Value: "soon"}, {Key: "holders", Value: bson.D{}}},
		"holders":  {{Key: "expireAt", Value: future}, {Key: "mode", Value: "exclusive"}, {Key: "rev", Value: bson.NewObjectID()}, {Key: "holders", Value: bson.A{}}},
	} {
		key := "k-" + field
		if _, err := coll.InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: key}, {Key: "mongolock", Value: 1}}, doc...)); err != nil {
			t.Fatal(err)
		}
		for call, err := range everyCall(t, client, key) {
			if !errors.Is(err, mongolock.ErrForeign) || !strings.Contains(err.Error(), "but "+field+" is") {
				t.Errorf("%s: %s: %v", field, call, err)
			}
		}
		after := storedDocument(t, coll, key)
		for _, e := range doc {
			want, err := bson.Marshal(bson.D{e})
			if err != nil {
				t.Fatal(err)
			}
			if !after.Lookup(e.Key).Equal(bson.Raw(want).Lookup(e.Key)) {
				t.Errorf("%s: %s became %v", field, e.Key, after.Lookup(e.Key))
			}
		}
	}
}

func TestOddKeysOwnersAndNotesComeBackByteForByteFromMongoDB(t *testing.T) {
	t.Parallel()
	texts := []string{
		" ", "$x", "$$NOW", "a.b", ".", "..", "a..b", "/", "a/b", "\x00", "a\x00b", "\t\n\r", "日本語", "👩‍👩‍👧", "e\u0301", "\u00e9",
		"{\"$gt\":\"\"}", "__proto__", "_id", "null", "0", "\u202e", "\ufeff", "\U0010ffff", "A", "a", "mongolock", "';--", `\`, "%00", "*", ".*",
		strings.Repeat("k", 256),
	}
	coll := testserver.Collection(t, testserver.Client(t))
	for i, text := range texts {
		client := newClientOn(t, coll, mongolock.WithOwner(text), mongolock.WithoutIndex(), mongolock.WithMargin(time.Millisecond))
		lease := tryAcquire(t, client, text, mongolock.Note(text))
		if lease.Key() != text {
			t.Errorf("%q: a lease of %q", text, lease.Key())
		}
		_, err := client.TryAcquire(contextFor(t, 10*time.Second), text)
		var held *mongolock.HeldError
		if !errors.As(err, &held) || len(held.Holders) != 1 || held.Key != text {
			t.Fatalf("%q: %v", text, err)
		}
		status, err := client.Inspect(contextFor(t, 10*time.Second), text)
		if err != nil || len(status.Holders) != 1 {
			t.Fatalf("%q: %+v, %v", text, status, err)
		}
		for _, h := range []mongolock.Holder{held.Holders[0], status.Holders[0]} {
			if h.Owner != text || h.Note != text {
				t.Errorf("%q: owner %q, note %q", text, h.Owner, h.Note)
			}
		}
		listed := 0
		for s, err := range client.List(contextFor(t, 10*time.Second), text) {
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if s.Key == text {
				listed++
			}
		}
		if listed != 1 {
			t.Errorf("%q: listed %d times", text, listed)
		}
		all := 0
		for _, err := range client.List(contextFor(t, 10*time.Second), "") {
			if err != nil {
				t.Fatal(err)
			}
			all++
		}
		if all != i+1 {
			t.Errorf("%q: %d keys are held, not %d: it was taken for another", text, all, i+1)
		}
	}
}

func TestABadKeyIsRefusedAndNothingIsSent(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t, mongolock.WithoutIndex())
	for name, key := range map[string]string{"empty": "", "too long": strings.Repeat("k", 1025), "not UTF-8": "a\xff"} {
		_, err := client.TryAcquire(t.Context(), key)
		if err == nil || !strings.Contains(err.Error(), "key") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := coll.CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 {
		t.Errorf("%d documents, %v", n, err)
	}
}

// An index in the way: which it is, and what EnsureIndex says. A lock does without.
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
			if _, err := coll.Indexes().CreateOne(t.Context(), index); err != nil {
				t.Fatal(err)
			}
			client := newClientOn(t, coll, mongolock.WithLogger(log.logger()))
			tryAcquire(t, client, "k")
			tryAcquire(t, client, "j")
			if lines := log.lines(); len(lines) != 1 || !strings.Contains(lines[0], "no TTL index") || !strings.Contains(lines[0], "level=WARN") {
				t.Errorf("logged %q", lines)
			}
			if err := client.EnsureIndex(t.Context()); err == nil || !strings.Contains(err.Error(), "ensure index") {
				t.Errorf("EnsureIndex: %v", err)
			}
		})
	}
}

func TestAnotherIndexOnTheSameFieldIsLeftAlone(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl")
	log := &logBuffer{}
	coll := testserver.Collection(t, testserver.Client(t))
	if _, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "expireAt", Value: 1}}}); err != nil {
		t.Fatal(err)
	}
	client := newClientOn(t, coll, mongolock.WithLogger(log.logger()))
	tryAcquire(t, client, "k")
	err := client.EnsureIndex(t.Context()) // before 5.0 a server has but one index on a field
	if failed, logged := err != nil, len(log.lines()) > 0; failed != logged {
		t.Errorf("EnsureIndex: %v; logged %q", err, log.lines())
	}
	specs, err := coll.Indexes().ListSpecifications(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(specs, func(s mongo.IndexSpecification) bool { return s.Name == "expireAt_1" && s.ExpireAfterSeconds == nil }) {
		t.Errorf("somebody's index became one of %+v", specs)
	}
}

func TestACollectionThatCannotHoldLocksIsAClearError(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl") // the servers that have none do not know such collections either
	for kind, opts := range map[string]bson.D{
		"view":        {{Key: "viewOn", Value: "others"}, {Key: "pipeline", Value: bson.A{}}},
		"time-series": {{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "at"}}}},
	} {
		t.Run(kind, func(t *testing.T) {
			if kind == "time-series" {
				testserver.Need(t, "timeseries") // since MongoDB 5.0
			}
			coll := testserver.Collection(t, testserver.Client(t))
			if err := coll.Database().RunCommand(t.Context(), append(bson.D{{Key: "create", Value: coll.Name()}}, opts...)).Err(); err != nil {
				t.Fatal(err)
			}
			client := newClientOn(t, coll)
			for range 2 {
				lease, err := client.TryAcquire(contextFor(t, 10*time.Second), "k")
				if lease != nil || err == nil || !strings.Contains(err.Error(), kind) || errors.Is(err, mongolock.ErrOutcomeUnknown) {
					t.Errorf("%v, %v", lease, err)
				}
			}
			if err := client.EnsureIndex(contextFor(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), kind) {
				t.Errorf("EnsureIndex: %v", err)
			}
		})
	}
}

func TestDisconnectBeforeCloseIsBoundedAndNamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	connected := testserver.Client(t)
	coll := testserver.Collection(t, testserver.Client(t))
	client := newClientOn(t, connected.Database(coll.Database().Name()).Collection(coll.Name()), mongolock.WithMargin(100*time.Millisecond))
	lease := tryAcquire(t, client, "left", mongolock.TTL(10*time.Second))
	if err := connected.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := client.Close()
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("Close took %v", took)
	}
	if err == nil || !strings.Contains(err.Error(), `"left"`) || !errors.Is(err, mongo.ErrClientDisconnected) {
		t.Errorf("Close: %v", err)
	}
	if !errors.Is(lease.Err(), mongolock.ErrClosed) {
		t.Errorf("the lease: %v", lease.Err())
	}
	if storedDocument(t, coll, "left") == nil {
		t.Error("gone: then the advice to close first is needless")
	}
}

func TestCallsAfterDisconnectSayThatTheClientIsDisconnected(t *testing.T) {
	t.Parallel()
	connected := testserver.Client(t)
	coll := testserver.Collection(t, testserver.Client(t)) // to drop it
	client := newClientOn(t, connected.Database(coll.Database().Name()).Collection(coll.Name()))
	if err := tryAcquire(t, client, "used").Release(); err != nil {
		t.Fatal(err)
	}
	if err := connected.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for call, do := range map[string]func() error{
		"Acquire":     func() error { _, err := client.Acquire(t.Context(), "k"); return err },
		"TryAcquire":  func() error { _, err := client.TryAcquire(t.Context(), "k"); return err },
		"Inspect":     func() error { _, err := client.Inspect(t.Context(), "k"); return err },
		"EnsureIndex": func() error { return client.EnsureIndex(t.Context()) },
	} {
		began := time.Now()
		err := do()
		if !errors.Is(err, mongo.ErrClientDisconnected) || errors.Is(err, mongolock.ErrOutcomeUnknown) || time.Since(began) > time.Second {
			t.Errorf("%s after %v: %v", call, time.Since(began), err)
		}
	}
	began := time.Now()
	if err := client.Close(); err != nil || time.Since(began) > time.Second {
		t.Errorf("nothing was held; Close after %v: %v", time.Since(began), err)
	}
}

// A capped collection would take the claim, and drop it when it is full.
func TestACappedCollectionIsRefused(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "capped")
	coll := testserver.Collection(t, testserver.Client(t))
	if err := coll.Database().CreateCollection(t.Context(), coll.Name(), options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<20)); err != nil {
		t.Fatal(err)
	}
	client := newClientOn(t, coll)
	for range 2 {
		lease, err := client.TryAcquire(contextFor(t, 10*time.Second), "k")
		if lease != nil || err == nil || !strings.Contains(err.Error(), coll.Name()+" is capped") || errors.Is(err, mongolock.ErrOutcomeUnknown) {
			t.Errorf("%v, %v", lease, err)
		}
		if left := storedDocument(t, coll, "k"); left != nil {
			t.Errorf("left behind: %v", left)
		}
	}
	if err := client.EnsureIndex(contextFor(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), "is capped") {
		t.Errorf("EnsureIndex: %v", err)
	}
	if err := coll.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	tryAcquire(t, client, "k") // mended
}
