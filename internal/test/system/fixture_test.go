package system

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
)

const (
	slack       = 250 * time.Millisecond  // how late anything may be on a real server
	feedBriefly = 250 * time.Millisecond  // that a feed stays open after its last waiter
	pollPause   = 1200 * time.Millisecond // how long a waiter sleeps at most between two looks
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait more than they compute. But the embedded server takes one command at a
	// time.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		at := "4"
		if testserver.Has("atomic") {
			at = "8"
		}
		_ = p.Value.Set(at)
	}
	m.Run()
}

// A fixture is a collection and the clients on it. Each client has a connection of its own:
// for the database and for each other, they are processes.
//
// When the test is over and all of them are closed, no key may be held any more.
type fixture struct {
	t       testing.TB
	uri     string
	coll    *mongo.Collection // without a proxy or a tap, like a shell's
	proxies []*faultproxy.Proxy
	rules   []*faultproxy.Rule
	worst   atomic.Int64 // of the trips to the server so far, see busy
	shared  bool         // other tests use the server too
}

func newFixture(t testing.TB, capabilities ...string) *fixture {
	t.Helper()
	return newFixtureOnAny(t, append(capabilities, "atomic")...) // several clients at once, whose connections are cut
}

// newFixtureOnAny is for claims that the embedded server can show as well.
func newFixtureOnAny(t testing.TB, capabilities ...string) *fixture {
	t.Helper()
	testserver.Need(t, append(capabilities, "mongodb")...)
	f := newFixtureAt(t, os.Getenv("MONGODB_URI"))
	f.shared = true
	return f
}

func newFixtureAt(t testing.TB, uri string) *fixture {
	t.Helper()
	f := &fixture{t: t, uri: uri}
	f.coll = testserver.Collection(t, f.connect(uri))
	t.Cleanup(f.mustHoldNothing)
	f.measure()
	return f
}

// measure keeps an eye on how busy the machine and the server are.
func (f *fixture) measure() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			_ = f.coll.Database().RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
			time.Sleep(25 * time.Millisecond)
			f.worst.Store(max(f.worst.Load(), int64(time.Since(begin)-25*time.Millisecond)))
		}
	})
	f.t.Cleanup(func() { cancel(); wg.Wait() })
}

// busy is what a busy machine may have cost. Where a test says how soon something must happen,
// that bound moves by this much. No bound of a safety moves.
func (f *fixture) busy() time.Duration { return 3 * time.Duration(f.worst.Load()) }

// within fails unless something took at most most, or on a busy machine more.
func (f *fixture) within(most, took time.Duration, what string) {
	f.t.Helper()
	most = pace.Of(most)
	assert.LessOrEqual(f.t, took, most+f.busy(), "%s: it took %v, want at most %v and %v for a busy machine", what, took, most, f.busy())
}

func (f *fixture) connect(uri string, opts ...func(*options.ClientOptions)) *mongo.Client {
	f.t.Helper()
	return testserver.Connect(f.t, uri, opts...)
}

// client is another process on the collection.
func (f *fixture) client(opts ...mongolock.ClientOption) *mongolock.Client {
	f.t.Helper()
	return f.warm(f.clientOn(f.reached(), opts...))
}

// reached connects, once more if need be: of some thousand connections to a busy SecantusDB
// one stays without an answer to its hello, and a driver waits for that with all it does.
func (f *fixture) reached(opts ...func(*options.ClientOptions)) *mongo.Client {
	f.t.Helper()
	for tries := 1; ; tries++ {
		conn := f.connect(f.uri, opts...)
		ctx, cancel := context.WithTimeout(f.ctx(), pace.Of(5*time.Second))
		err := conn.Ping(ctx, nil)
		cancel()
		if err == nil || tries == 3 {
			require.NoError(f.t, err)
			return conn
		}
		f.t.Log("connecting once more: ", err)
	}
}

// warm makes a client connect and learn the server's time, so that the next command
// is its own and as quick as any.
func (f *fixture) warm(c *mongolock.Client) *mongolock.Client {
	f.t.Helper()
	_, err := c.Inspect(f.ctx(), "warm")
	require.NoError(f.t, err)
	if testserver.Has("router") { // its hello does not tell the shard's time
		f.release(f.acquire(c, "warm "+rand.Text()))
	}
	return c
}

// tapped is a client whose commands can be counted.
func (f *fixture) tapped(opts ...mongolock.ClientOption) (*mongolock.Client, *testserver.Tap) {
	f.t.Helper()
	tap := &testserver.Tap{}
	conn := f.connect(f.uri, tap.On)
	return f.clientOn(conn, opts...), tap
}

func (f *fixture) clientOn(conn *mongo.Client, opts ...mongolock.ClientOption) *mongolock.Client {
	f.t.Helper()
	coll := conn.Database(f.coll.Database().Name()).Collection(f.coll.Name())
	quiet := []mongolock.ClientOption{mongolock.WithLogger(slog.New(slog.DiscardHandler)), mongolock.WithoutIndex()}
	c := f.clientOfStore(coll, append(quiet, opts...)...)
	f.t.Cleanup(func() {
		f.endFaults()
		_ = c.Close()
	})
	return c
}

// clientOfStore makes a client. If other tests use the server too, its feed is shorter than a
// program's: SecantusDB keeps a core busy for each cursor that awaits data, to the end of the
// wait, even if the reader has closed the connection or is cut off.
func (f *fixture) clientOfStore(coll *mongo.Collection, opts ...mongolock.ClientOption) *mongolock.Client {
	f.t.Helper()
	if !f.shared {
		c, err := mongolock.New(coll, opts...)
		require.NoError(f.t, err)
		return c
	}
	s, err := mongostore.New(coll, mongostore.WithoutIndex(), mongostore.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(f.t, err)
	inside.FeedAwait(s, feedBriefly)
	c, err := mongolock.NewWithStore(s, opts...)
	require.NoError(f.t, err)
	inside.FeedLinger(c, feedBriefly)
	return c
}

// A retrying says whether a client's driver retries writes.
type retrying bool

const (
	withRetries retrying = true
	noRetries   retrying = false
)

// behind is a client on the far side of a proxy.
func (f *fixture) behind(retries retrying, opts ...mongolock.ClientOption) (*mongolock.Client, *faultproxy.Proxy) {
	f.t.Helper()
	proxy := faultproxy.New(f.t, f.uri)
	f.proxies = append(f.proxies, proxy)
	conn := f.connect(proxy.URI(), func(o *options.ClientOptions) { o.SetRetryWrites(bool(retries)) })
	return f.warm(f.clientOn(conn, opts...)), proxy
}

// on puts a rule in force until the test is over.
func (f *fixture) on(proxy *faultproxy.Proxy, m faultproxy.Matcher, actions ...faultproxy.Action) *faultproxy.Rule {
	rule := proxy.On(m, actions...)
	f.rules = append(f.rules, rule)
	return rule
}

// endFaults ends all faults.
func (f *fixture) endFaults() {
	for _, rule := range f.rules {
		rule.Remove()
	}
	for _, proxy := range f.proxies {
		proxy.Restore()
	}
}

// longest is how long anything may take.
func longest() time.Duration { return pace.Of(30 * time.Second) }

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), longest())
	f.t.Cleanup(cancel)
	return ctx
}

func (f *fixture) acquire(c *mongolock.Client, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	f.t.Helper()
	l, err := c.Acquire(f.ctx(), key, opts...)
	require.NoError(f.t, err, "Acquire(%q)", key)
	return l
}

// release calls once more if a server that others starve has not answered in the time that a
// release may take.
func (f *fixture) release(l *mongolock.Lease) {
	f.t.Helper()
	err := l.Release()
	for give := time.Now().Add(longest()); errors.Is(err, context.DeadlineExceeded) && time.Now().Before(give); {
		err = l.Release()
	}
	assert.NoError(f.t, err, "Release of %q", l.Key())
}

// An outcome is what an Acquire in the background came to.
type outcome struct {
	lease *mongolock.Lease
	err   error
	when  time.Time
}

func (f *fixture) inBackground(ctx context.Context, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) <-chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		l, err := c.Acquire(ctx, key, opts...)
		ch <- outcome{l, err, time.Now()}
	}()
	return ch
}

// granted waits for the grant.
func (f *fixture) granted(answer <-chan outcome) outcome {
	f.t.Helper()
	select {
	case a := <-answer:
		require.NoError(f.t, a.err)
		return a
	case <-time.After(longest()):
		f.t.Fatal("never granted")
	}
	return outcome{}
}

// waits returns once a client's waiter for a key was refused.
func (f *fixture) waits(c *mongolock.Client, key string) {
	f.t.Helper()
	f.until(time.Now().Add(5*time.Second), "it waits for "+key, func() bool {
		return inside.Look(c, key).Refused
	})
}

// document is what is stored under a key, nil if nothing is.
func (f *fixture) document(key string) bson.Raw {
	f.t.Helper()
	raw, err := f.coll.FindOne(f.ctx(), bson.D{{Key: "_id", Value: key}}).Raw()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		f.t.Fatal(err)
	}
	return raw
}

// holders are the IDs in the document of a key.
func (f *fixture) holders(key string) []string {
	f.t.Helper()
	var d struct{ Holders bson.M }
	if raw := f.document(key); raw != nil {
		require.NoError(f.t, bson.Unmarshal(raw, &d))
	}
	return slices.Collect(maps.Keys(d.Holders))
}

// mustHold fails unless the lease, and it alone, is in the document.
func (f *fixture) mustHold(l *mongolock.Lease) {
	f.t.Helper()
	ids := f.holders(l.Key())
	assert.Equal(f.t, []string{l.ID()}, ids, "%q: the lease says %v; %d holders, it among them: %v", l.Key(), l.Err(), len(ids), slices.Contains(ids, l.ID()))
	assert.NoError(f.t, l.Err(), "%q: the lease says %v; %d holders, it among them: %v", l.Key(), l.Err(), len(ids), slices.Contains(ids, l.ID()))
}

// mustBeGone fails unless the document of the key is deleted by then.
func (f *fixture) mustBeGone(key string, by time.Time) {
	f.t.Helper()
	f.until(by, key+" is deleted", func() bool { return f.document(key) == nil })
}

// mustBeAbsent fails unless it is deleted now.
func (f *fixture) mustBeAbsent(key string) {
	f.t.Helper()
	assert.Nil(f.t, f.document(key), "%q is there", key)
}

// until waits for something to come true, and fails if it has not by then, or later on a busy
// machine.
func (f *fixture) until(by time.Time, what string, is func() bool) {
	f.t.Helper()
	left := max(0, time.Until(by))
	by = by.Add(pace.Of(left) - left)
	for !is() {
		require.False(f.t, time.Now().After(by.Add(f.busy())), "too late or never: %s", what)
		time.Sleep(5 * time.Millisecond)
	}
}

// mustHoldNothing fails if a key is held though all clients were closed.
func (f *fixture) mustHoldNothing() {
	if f.t.Failed() || f.t.Skipped() {
		return // a failed test may have left something
	}
	s, err := mongostore.New(f.coll, mongostore.WithoutIndex())
	require.NoError(f.t, err)
	for status, err := range s.List(f.ctx(), "") {
		require.NoError(f.t, err)
		if isGhost(&status) {
			f.t.Logf("%q was granted after its clean-up, which this server allows", status.Key)
			continue
		}
		assert.True(f.t, hasRunOut(&status), "%q is held for %v yet, though all clients are closed", status.Key, status.Left())
	}
}

// hasRunOut reports whether all holders have run out, if only by their dates: behind a router that is
// certain a minute later.
func hasRunOut(s *store.Status) bool {
	return !slices.ContainsFunc(s.Holders, func(h store.Holder) bool { return s.Live(h) && !s.Confirming(h) })
}

// isGhost reports whether the key was granted in this moment, on a server that may execute a claim
// after the clean-up that follows it in its session. SecantusDB does if it is slow.
func isGhost(s *store.Status) bool {
	return !testserver.Has("inturn") && len(s.Holders) == 1 && s.Now.Sub(s.Holders[0].Since) < 250*time.Millisecond
}

// withFields matches commands with these fields.
func withFields(paths ...[]string) func(bson.Raw) bool {
	return func(c bson.Raw) bool {
		for _, path := range paths {
			if c.Lookup(path...).IsZero() {
				return false
			}
		}
		return true
	}
}

// The commands of the protocol, as a proxy sees them.
var (
	modifyCommands  = faultproxy.Command("findAndModify")
	claimCommands   = modifyCommands.Where(withFields([]string{"upsert"}))
	confirmCommands = modifyCommands.Where(withFields([]string{"update", "$currentDate", fieldStamp}))
)

// The fields of the document.
const (
	fieldVersion  = "mongolock"
	fieldExpireAt = "expireAt"
	fieldStamp    = "stamp"
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
