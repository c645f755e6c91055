package system

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// A logbook is what a client logs, as "LEVEL trap" for each trap.
type logbook struct {
	mu    sync.Mutex // protects traps
	t     *testing.T
	traps []string
}

func (b *logbook) Write(line []byte) (int, error) {
	var said struct{ Level, Trap, Is, Why, Do string }
	if err := json.Unmarshal(line, &said); !assert.NoError(b.t, err) || said.Trap == "" {
		return len(line), nil
	}
	assert.NotEmpty(b.t, said.Is+said.Why, "%s", line)
	assert.NotEmpty(b.t, said.Do, "%s", line)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.traps = append(b.traps, said.Level+" "+said.Trap)
	return len(line), nil
}

func (b *logbook) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.traps...)
}

func (b *logbook) option() mongolock.ClientOption { return mongolock.WithLogger(b.logger()) }

func (b *logbook) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(b, nil)) }

// A trapped is a server that answers as others do.
type trapped struct {
	t    *testing.T
	line testserver.Line
	tap  testserver.Tap
	book *logbook
}

func newTrapped(t *testing.T) *trapped {
	t.Helper()
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	return &trapped{t: t, book: &logbook{t: t}}
}

// answers replaces the replies to commands of these names.
func (s *trapped) answers(with map[string]bson.D) {
	s.line.Set(func(name string, c bson.Raw) testserver.Fate {
		db, _ := c.Lookup("$db").StringValueOK()
		if reply, ok := with[name]; ok && (name != "hello" || db != "admin") { // else it is the driver's own
			if name == "hello" {
				reply = append(bson.D{{Key: "localTime", Value: time.Now()}}, reply...)
			}
			return testserver.Fate{Instead: reply}
		}
		return testserver.Fate{}
	})
}

func (s *trapped) client(opts ...func(*options.ClientOptions)) *mongolock.Client {
	s.t.Helper()
	coll := testserver.Collection(s.t, testserver.Client(s.t, append(opts, s.line.Through, s.tap.On)...))
	client, err := mongolock.New(coll, s.book.option(), mongolock.WithoutIndex())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// use takes keys and gives them back, until the client has asked for what it wants to know.
func (s *trapped) use(client *mongolock.Client) {
	s.t.Helper()
	for i := range 5 {
		lease, err := client.TryAcquire(s.t.Context(), fmt.Sprint("key ", i))
		require.NoError(s.t, err)
		require.NoError(s.t, lease.Release())
	}
	require.NoError(s.t, client.Close()) // waits for what is under way
}

func answered(fields ...bson.E) bson.D { return append(bson.D{{Key: "ok", Value: 1}}, fields...) }

func TestAClientWarnsOnceOfEachTrapOfItsDeployment(t *testing.T) {
	hello := func(more ...bson.E) bson.D {
		return answered(append(more, bson.E{Key: "isWritablePrimary", Value: true},
			bson.E{Key: "logicalSessionTimeoutMinutes", Value: 30})...)
	}
	config := func(journaled bool, members ...bool) bson.D {
		var all bson.A
		for _, arbiter := range members {
			all = append(all, bson.D{{Key: "votes", Value: 1}, {Key: "arbiterOnly", Value: arbiter}})
		}
		return answered(bson.E{Key: "config", Value: bson.D{{Key: "writeConcernMajorityJournalDefault", Value: journaled}, {Key: "members", Value: all}}})
	}
	version := func(major, minor, patch int) bson.D {
		return answered(bson.E{Key: "versionArray", Value: bson.A{major, minor, patch, 0}})
	}
	engine := func(name string) bson.D {
		return answered(bson.E{Key: "storageEngine", Value: bson.D{{Key: "name", Value: name}}})
	}
	set := bson.E{Key: "setName", Value: "rs0"}
	const commandNotFound = 59
	for name, c := range map[string]struct {
		answers map[string]bson.D
		want    []string
		options func(*options.ClientOptions)
	}{
		"a set of three": {answers: map[string]bson.D{"buildInfo": version(8, 0, 4), "serverStatus": engine("wiredTiger"), "replSetGetConfig": config(true, false, false, false)}},
		"standalone 8.0": {answers: map[string]bson.D{"hello": hello(), "buildInfo": version(8, 0, 4), "serverStatus": engine("wiredTiger")},
			want: []string{"WARN standalone-8.0", "INFO standalone"}},
		"standalone 7.0": {answers: map[string]bson.D{"hello": hello(), "buildInfo": version(7, 0, 4), "serverStatus": engine("wiredTiger")},
			want: []string{"INFO standalone"}},
		"in memory": {answers: map[string]bson.D{"buildInfo": version(8, 0, 4), "serverStatus": engine("inMemory"), "replSetGetConfig": config(true, false)},
			want: []string{"WARN memory-engine"}},
		"a majority in memory, with an arbiter": {answers: map[string]bson.D{"buildInfo": version(8, 0, 4), "replSetGetConfig": config(false, false, false, true)},
			want: []string{"WARN majority-in-memory", "WARN arbiter"}},
		"an arbiter, seen without rights": {answers: map[string]bson.D{
			"hello":     hello(set, bson.E{Key: "hosts", Value: bson.A{"a:1", "b:1"}}, bson.E{Key: "arbiters", Value: bson.A{"c:1"}}),
			"buildInfo": version(8, 0, 4), "serverStatus": refusedOf(13), "replSetGetConfig": refusedOf(13)},
			want: []string{"WARN arbiter"}},
		"no hello": {answers: map[string]bson.D{"hello": refusedOf(commandNotFound), "buildInfo": version(4, 4, 0), "replSetGetConfig": config(true, false)},
			want: []string{"INFO no-hello"}},
		"no retries": {answers: map[string]bson.D{"buildInfo": version(8, 0, 4), "replSetGetConfig": config(true, false)},
			options: func(o *options.ClientOptions) { o.SetRetryWrites(false) },
			want:    []string{"INFO no-retries"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTrapped(t)
			s.answers(c.answers)
			if c.options == nil {
				c.options = func(*options.ClientOptions) {}
			}
			s.use(s.client(c.options))
			assert.Equal(t, append([]string{}, c.want...), s.book.seen())
		})
	}
}

func refusedOf(code int) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "no"}}
}

// A client looks for traps once, and no claim waits for that.
func TestALookForTrapsIsThreeCommandsForEachClient(t *testing.T) {
	s := newTrapped(t)
	client := s.client()
	_, err := client.Inspect(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, []string{"hello", "find"}, s.tap.TakeNames(), "a look asks for no more")
	s.use(client)
	sent := map[string]int{}
	for _, name := range s.tap.TakeNames() {
		sent[name]++
	}
	assert.Equal(t, map[string]int{"listCollections": 1, "findAndModify": 10, "buildInfo": 1, "serverStatus": 1, "replSetGetConfig": 1}, sent,
		"for five grants and five releases")
}

func TestAServerThatDoesNotTellItsTrapsHoldsUpNoCall(t *testing.T) {
	s := newTrapped(t)
	proxy := faultproxy.New(t, testserver.URI(t))
	silent := proxy.On(faultproxy.Command("serverStatus"), faultproxy.HalfOpen())
	coll := testserver.Collection(t, testserver.Connect(t, proxy.URI()))
	client, err := mongolock.New(coll, s.book.option(), mongolock.WithoutIndex(), mongolock.TTL(8*time.Second))
	require.NoError(t, err)
	lease, err := client.TryAcquire(t.Context(), "first")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return silent.Hits() == 1 }, 10*time.Second, 5*time.Millisecond)
	for i := range 10 {
		_, err := client.TryAcquire(t.Context(), fmt.Sprint("key ", i))
		require.NoError(t, err)
	}
	require.NoError(t, lease.Err())
	require.NoError(t, client.Close())
	assert.Empty(t, s.book.seen())
}

// Locks on documents have the same engine, and warn as it does.
func TestDocumentLocksWarnToo(t *testing.T) {
	s := newTrapped(t)
	s.answers(map[string]bson.D{"serverStatus": answered(bson.E{Key: "storageEngine", Value: bson.D{{Key: "name", Value: "inMemory"}}})})
	coll := testserver.Collection(t, testserver.Client(t, s.line.Through))
	_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "order-17"}})
	require.NoError(t, err)
	orders, err := doclock.New[bson.M](coll, doclock.WithLogger(s.book.logger()))
	require.NoError(t, err)
	doc, err := orders.Acquire(t.Context(), doclock.ID("order-17"))
	require.NoError(t, err)
	require.NoError(t, doc.Release())
	require.NoError(t, orders.Close())
	assert.Contains(t, strings.Join(s.book.seen(), ","), "WARN memory-engine")
}
