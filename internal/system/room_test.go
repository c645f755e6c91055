package system

import (
	"context"
	"errors"
	"flag"
	"log/slog"
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

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/store/mongostore"
	"github.com/stretchr/testify/require"
)

const (
	mongoPollMost    = time.Second           // a waiter without a feed polls at least this often
	mongoLookAgain   = 50 * time.Millisecond // after a waiter left its word it looks once more
	mongoReleaseMost = 5 * time.Second       // Release takes at most this long

	mongoSlack   = 250 * time.Millisecond // what anything on a real server may be late
	mongoBriefly = 250 * time.Millisecond // that a feed outlasts who needs it
	mongoPoll    = mongoPollMost * 6 / 5  // how long a waiter sleeps at most between two looks
)

// TestMain is also the main function of the processes that tests start, see
// mongoChild.
func TestMain(m *testing.M) {
	if run := mongoChildren[os.Getenv(mongoChildIs)]; run != nil {
		run()
		return
	}
	flag.Parse()
	// Those on a server wait for time to pass more than they compute; but the embedded
	// one takes one command at a time.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		at := "4"
		if mongoCan("atomic") {
			at = "8"
		}
		_ = p.Value.Set(at)
	}
	m.Run()
}

// A mongoRoom is a collection and the clients on it. Each has a connection of its
// own: to the database, and to each other, they are processes.
//
// When the test is over and all of them are closed, no key may be held any more.
type mongoRoom struct {
	t       testing.TB
	uri     string
	coll    *mongo.Collection // past everything: somebody at the shell
	proxies []*faultproxy.Proxy
	rules   []*faultproxy.Rule
	worst   atomic.Int64 // of the trips to the server so far, see busy
	server  mongoServing
}

func newMongoRoom(t testing.TB, capabilities ...string) *mongoRoom {
	t.Helper()
	return newAnyRoom(t, append(capabilities, "atomic")...) // several clients at once, and connections cut under them
}

// newAnyRoom is for what the embedded server shows as well.
func newAnyRoom(t testing.TB, capabilities ...string) *mongoRoom {
	t.Helper()
	mongoNeeds(t, append(capabilities, "mongodb")...)
	r := newMongoRoomAt(t, os.Getenv("MONGODB_URI"))
	r.server = mongoAmongOthers
	return r
}

// newMongoRoomApart is a room on a server of its own, where one can be had. What a test
// leaves there that keeps SecantusDB busy, see spareTheServer, ends with it.
func newMongoRoomApart(t testing.TB, capabilities ...string) *mongoRoom {
	t.Helper()
	if !mongoCan("process") {
		return newMongoRoom(t, capabilities...)
	}
	mongoNeeds(t, capabilities...)
	r := newMongoRoomAt(t, testserver.Start(t, "").URI)
	r.server = mongoApart
	return r
}

// A mongoServing says what a server of a test has beside it.
type mongoServing int

const (
	mongoAsFound     mongoServing = iota
	mongoAmongOthers              // other tests
	mongoApart                    // nothing: it ends with the test
)

func newMongoRoomAt(t testing.TB, uri string) *mongoRoom {
	t.Helper()
	r := &mongoRoom{t: t, uri: uri}
	r.coll = mongoColl(t, r.connect(uri))
	t.Cleanup(r.mustBeEmpty)
	r.measure()
	return r
}

// measure keeps an eye on how busy the machine and the server are.
func (r *mongoRoom) measure() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			_ = r.coll.Database().RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
			time.Sleep(25 * time.Millisecond)
			r.worst.Store(max(r.worst.Load(), int64(time.Since(begin)-25*time.Millisecond)))
		}
	})
	r.t.Cleanup(func() { cancel(); wg.Wait() })
}

// busy is what the machine's being busy may have cost: where a test says how soon
// something must happen it means that much later. It moves no limit that safety
// depends on.
func (r *mongoRoom) busy() time.Duration { return 3 * time.Duration(r.worst.Load()) }

// within fails unless something took no longer than so long.
func (r *mongoRoom) within(most, took time.Duration, what string) {
	r.t.Helper()
	if took > most+r.busy() {
		r.t.Errorf("%s: it took %v, want at most %v and %v for a busy machine", what, took, most, r.busy())
	}
}

func (r *mongoRoom) connect(uri string, opts ...func(*options.ClientOptions)) *mongo.Client {
	r.t.Helper()
	return testserver.Connect(r.t, uri, opts...)
}

// client is another process on the collection.
func (r *mongoRoom) client(opts ...mongolock.ClientOption) *mongolock.Client {
	r.t.Helper()
	return r.warm(r.clientOn(r.connect(r.uri), opts...))
}

// warm makes a client connect and learn the server's time, so that the next command
// is its own and as quick as any.
func (r *mongoRoom) warm(c *mongolock.Client) *mongolock.Client {
	r.t.Helper()
	if _, err := c.Inspect(r.ctx(), "warm"); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// tapped is a client whose commands can be counted.
func (r *mongoRoom) tapped(opts ...mongolock.ClientOption) (*mongolock.Client, *testserver.Tap) {
	r.t.Helper()
	tap := &testserver.Tap{}
	conn := r.connect(r.uri, tap.On)
	return r.clientOn(conn, opts...), tap
}

func (r *mongoRoom) clientOn(conn *mongo.Client, opts ...mongolock.ClientOption) *mongolock.Client {
	r.t.Helper()
	coll := conn.Database(r.coll.Database().Name()).Collection(r.coll.Name())
	quiet := []mongolock.ClientOption{mongolock.WithLogger(slog.New(slog.DiscardHandler)), mongolock.WithoutIndex()}
	c := r.clientOfStore(coll, append(quiet, opts...)...)
	r.t.Cleanup(func() {
		r.calm()
		_ = c.Close()
	})
	return c
}

// clientOfStore makes a client with a feed shorter than that of a program, if the
// server has other tests beside this one: SecantusDB keeps a core busy for each cursor
// that awaits something, to the end of the wait, though the reader has closed the
// connection or is cut off.
func (r *mongoRoom) clientOfStore(coll *mongo.Collection, opts ...mongolock.ClientOption) *mongolock.Client {
	r.t.Helper()
	if r.server != mongoAmongOthers {
		c, err := mongolock.New(coll, opts...)
		require.NoError(r.t, err)
		return c
	}
	s, err := mongostore.New(coll, mongostore.WithoutIndex(), mongostore.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(r.t, err)
	inside.FeedAwait(s, mongoBriefly)
	c, err := mongolock.NewWithStore(s, opts...)
	require.NoError(r.t, err)
	inside.FeedLinger(c, mongoBriefly)
	return c
}

// Whether the driver of a client retries its writes.
type mongoRetrying bool

const (
	withRetries mongoRetrying = true
	noRetries   mongoRetrying = false
)

func (m mongoRetrying) String() string {
	if m {
		return "with retries"
	}
	return "without retries"
}

// behind is a client on the far side of a proxy.
func (r *mongoRoom) behind(retries mongoRetrying, opts ...mongolock.ClientOption) (*mongolock.Client, *faultproxy.Proxy) {
	r.t.Helper()
	proxy := faultproxy.New(r.t, r.uri)
	r.proxies = append(r.proxies, proxy)
	return r.through(proxy, retries, opts...), proxy
}

// through is one more client behind a proxy.
func (r *mongoRoom) through(proxy *faultproxy.Proxy, retries mongoRetrying, opts ...mongolock.ClientOption) *mongolock.Client {
	r.t.Helper()
	conn := r.connect(proxy.URI(), func(o *options.ClientOptions) { o.SetRetryWrites(bool(retries)) })
	return r.warm(r.clientOn(conn, opts...))
}

// on puts a rule in force until the test is over.
func (r *mongoRoom) on(proxy *faultproxy.Proxy, m faultproxy.Matcher, actions ...faultproxy.Action) *faultproxy.Rule {
	rule := proxy.On(m, actions...)
	r.rules = append(r.rules, rule)
	return rule
}

// calm ends all faults.
func (r *mongoRoom) calm() {
	for _, rule := range r.rules {
		rule.Remove()
	}
	for _, proxy := range r.proxies {
		proxy.Restore()
	}
}

func (r *mongoRoom) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *mongoRoom) acquire(c *mongolock.Client, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	r.t.Helper()
	l, err := c.Acquire(r.ctx(), key, opts...)
	if err != nil {
		r.t.Fatalf("Acquire(%q): %v", key, err)
	}
	return l
}

func (r *mongoRoom) release(l *mongolock.Lease) {
	r.t.Helper()
	if err := l.Release(); err != nil {
		r.t.Errorf("Release of %q: %v", l.Key(), err)
	}
}

// A mongoAnswer is what an Acquire in the background came to.
type mongoAnswer struct {
	lease *mongolock.Lease
	err   error
	when  time.Time
}

func (r *mongoRoom) inBackground(ctx context.Context, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) <-chan mongoAnswer {
	ch := make(chan mongoAnswer, 1)
	go func() {
		l, err := c.Acquire(ctx, key, opts...)
		ch <- mongoAnswer{l, err, time.Now()}
	}()
	return ch
}

// granted waits for the grant.
func (r *mongoRoom) granted(answer <-chan mongoAnswer) mongoAnswer {
	r.t.Helper()
	select {
	case a := <-answer:
		if a.err != nil {
			r.t.Fatal(a.err)
		}
		return a
	case <-time.After(20 * time.Second):
		r.t.Fatal("never granted")
	}
	return mongoAnswer{}
}

// waits returns once a client stands in line for a key, and has been refused.
func (r *mongoRoom) waits(c *mongolock.Client, key string) {
	r.t.Helper()
	r.until(time.Now().Add(5*time.Second), "it waits for "+key, func() bool {
		w := inside.Look(c, key)
		return w.Refused && !w.Asking
	})
}

// document is what is stored under a key, nil if nothing is.
func (r *mongoRoom) document(key string) bson.Raw {
	r.t.Helper()
	raw, err := r.coll.FindOne(r.ctx(), bson.D{{Key: "_id", Value: key}}).Raw()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		r.t.Fatal(err)
	}
	return raw
}

// holders are the IDs in the document of a key.
func (r *mongoRoom) holders(key string) (ids []string) {
	r.t.Helper()
	for id := range readLock(r.document(key)).Holders {
		ids = append(ids, id)
	}
	return ids
}

// mustHold fails unless the lease, and it alone, is in the document.
func (r *mongoRoom) mustHold(l *mongolock.Lease) {
	r.t.Helper()
	if ids := r.holders(l.Key()); !slices.Equal(ids, []string{l.ID()}) || l.Err() != nil {
		r.t.Errorf("%q: the lease says %v; %d holders, it among them: %v", l.Key(), l.Err(), len(ids), slices.Contains(ids, l.ID()))
	}
}

// mustBeGone fails unless the document of the key is deleted by then.
func (r *mongoRoom) mustBeGone(key string, by time.Time) {
	r.t.Helper()
	r.until(by, key+" is deleted", func() bool { return r.document(key) == nil })
}

// mustBeAbsent fails unless it is deleted now.
func (r *mongoRoom) mustBeAbsent(key string) {
	r.t.Helper()
	if d := r.document(key); d != nil {
		r.t.Errorf("%q is there: %v", key, d)
	}
}

// until fails unless something comes true by then.
func (r *mongoRoom) until(by time.Time, what string, is func() bool) {
	r.t.Helper()
	for !is() {
		if time.Now().After(by.Add(r.busy())) {
			r.t.Fatalf("too late or never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// cleanedUp waits until a client has nothing of unknown outcome left.
func (r *mongoRoom) cleanedUp(c *mongolock.Client) {
	r.t.Helper()
	r.until(time.Now().Add(10*time.Second), "cleaned up", func() bool {
		return inside.Look(c, "").Unsettled == 0
	})
}

// await waits for something that must happen.
func (r *mongoRoom) await(ch <-chan struct{}, what string) time.Time {
	r.t.Helper()
	select {
	case <-ch:
	case <-time.After(15 * time.Second):
		r.t.Fatalf("never: %s", what)
	}
	return time.Now()
}

// mustBeEmpty fails if a key is held though all clients were closed: a ghost.
func (r *mongoRoom) mustBeEmpty() {
	if r.t.Failed() || r.t.Skipped() {
		return // what failed may have left something
	}
	s, err := mongostore.New(r.coll, mongostore.WithoutIndex())
	require.NoError(r.t, err)
	for status, err := range s.List(r.ctx(), "") {
		if err != nil {
			r.t.Fatal(err)
		}
		if !status.Free() {
			r.t.Errorf("%q is held for %v yet, though all clients are closed", status.Key, status.Left())
		}
	}
}

// mongoHas asks for commands with these fields.
func mongoHas(paths ...[]string) func(bson.Raw) bool {
	return func(c bson.Raw) bool {
		for _, path := range paths {
			if c.Lookup(path...).IsZero() {
				return false
			}
		}
		return true
	}
}

func mongoLacks(path ...string) func(bson.Raw) bool {
	return func(c bson.Raw) bool { return c.Lookup(path...).IsZero() }
}

// mongoPlace asks for commands whose filter is that of a hand-over: a revision and
// nothing else, or a holder that was not broken.
func mongoPlace(c bson.Raw) bool {
	query, _ := c.Lookup("query").DocumentOK()
	elements, _ := query.Elements()
	return len(elements) == 3 && !query.Lookup(fieldRev).IsZero() ||
		slices.ContainsFunc(elements, func(e bson.RawElement) bool { return strings.HasSuffix(e.Key(), "."+fieldBroken) })
}

// The rows of the protocol, as a proxy sees them.
var (
	mongoModify   = faultproxy.Command("findAndModify")
	mongoClaims   = mongoModify.Where(mongoHas([]string{"upsert"}))
	mongoWords    = mongoModify.Where(mongoHas([]string{"update", "$max", fieldWanted}))
	mongoSwaps    = mongoModify.Where(mongoHas([]string{"query", fieldRev})).Where(func(c bson.Raw) bool { return !mongoPlace(c) })
	mongoHandOver = mongoModify.Where(mongoHas([]string{"update", "$set", fieldHolders})).Where(mongoPlace)
	mongoRenewals = mongoModify.Where(mongoHas([]string{"update", "$max", fieldExpireAt}))
	mongoBulks    = faultproxy.Command("update")
	mongoReleases = mongoModify.Where(mongoHas([]string{"remove"})).Where(mongoLacks("writeConcern", "j"))
	mongoUndoes   = mongoModify.Where(mongoHas([]string{"remove"}, []string{"writeConcern", "j"}))
	mongoConfirms = mongoModify.Where(mongoHas([]string{"update", "$currentDate", fieldStamp}))
)

// A lockDocument is the document of a key, as design.md §3 has it.
type lockDocument struct {
	Mark            int                   `bson:"mongolock"`
	Mode            string                `bson:"mode"`
	Holders         map[string]lockHolder `bson:"holders"`
	ExpireAt        time.Time             `bson:"expireAt"`
	Rev             bson.ObjectID         `bson:"rev"`
	At              time.Time             `bson:"at"`
	Wanted          time.Time             `bson:"wantedUntil"`
	ExclusiveWanted time.Time             `bson:"exclusiveWantedUntil"`
}

type lockHolder struct {
	Owner    string    `bson:"owner"`
	Note     string    `bson:"note"`
	Since    time.Time `bson:"since"`
	ExpireAt time.Time `bson:"expireAt"`
}

// readLock reads a document; the zero value where there is none, or of another shape.
func readLock(raw bson.Raw) (d lockDocument) {
	if raw != nil {
		_ = bson.Unmarshal(raw, &d)
	}
	return d
}

// only is the one holder that a document has; the zero value if it has another number.
func (d lockDocument) only() lockHolder {
	if len(d.Holders) == 1 {
		for _, h := range d.Holders {
			return h
		}
	}
	return lockHolder{}
}

// The fields of the document.
const (
	fieldMark     = "mongolock"
	fieldMode     = "mode"
	fieldLimit    = "limit"
	fieldHolders  = "holders"
	fieldExpireAt = "expireAt"
	fieldRev      = "rev"
	fieldAt       = "at"
	fieldWanted   = "wantedUntil"
	fieldOwner    = "owner"
	fieldNote     = "note"
	fieldSince    = "since"
	fieldBroken   = "broken"
	fieldStamp    = "stamp"
)
