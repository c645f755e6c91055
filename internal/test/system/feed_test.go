package system

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// feedSoon bounds the wake-up of a waiter that is told, or that polls, on a busy machine. A
// waiter that is not told sleeps until the holder that it saw should expire: at least 20 s,
// the TTL here less the period of renewals.
func feedSoon() time.Duration { return min(pace.Of(5*time.Second), 18*time.Second) }

// feedFound bounds the time in which a feed that was dropped is found again: MongoDB 5.0 tells of it
// only when a read of the cursor ends.
func feedFound() time.Duration { return min(10*time.Second+feedSoon(), 18*time.Second) }

// newFeedFixture is a fixture on a server with a feed.
func newFeedFixture(t testing.TB) *fixture {
	t.Helper()
	f := newFixture(t, "capped")
	f.shared = false // the feed is like a program's
	return f
}

// wakes is the collection of wake-ups.
func (f *fixture) wakes() *mongo.Collection {
	return f.coll.Database().Collection(f.coll.Name() + ".wake")
}

// offerNotice is a wake-up as clients send it.
func offerNotice(key string) bson.D {
	return bson.D{
		{Key: fieldVersion, Value: 1}, {Key: "topic", Value: store.TopicLocks}, {Key: "key", Value: key}, {Key: "kind", Value: store.KindOffered},
		{Key: "to", Value: "nobody"}, {Key: "place", Value: "x:nobody:0"},
	}
}

// A feedState is the state of the collection of wake-ups.
type feedState int

const (
	feedMissing feedState = iota
	feedCapped
	feedUncapped
)

func (f *fixture) wakesAre() feedState {
	f.t.Helper()
	specs, err := f.coll.Database().ListCollectionSpecifications(f.ctx(), bson.D{{Key: "name", Value: f.wakes().Name()}})
	require.NoError(f.t, err)
	if len(specs) == 0 {
		return feedMissing
	}
	if capped, _ := specs[0].Options.Lookup("capped").BooleanOK(); capped {
		return feedCapped
	}
	return feedUncapped
}

// asleep waits until the client's waiters of a key have nothing left to do, with an open feed
// if they are to have one.
func (f *fixture) asleep(c *mongolock.Client, key string, feed bool) {
	f.t.Helper()
	f.until(time.Now().Add(20*time.Second), "asleep on "+key, func() bool {
		return inside.Look(c, key).Asleep && (c.Stats().Feed == store.FeedLive) == feed
	})
}

// handsOver passes the key from one client to another that waits for it. The hand-over may
// take most.
func (f *fixture) handsOver(from, to *mongolock.Client, key string, feed bool, most time.Duration) {
	f.t.Helper()
	l := f.acquire(from, key)
	wait := f.inBackground(f.ctx(), to, key)
	f.asleep(to, key, feed)
	start := time.Now()
	f.release(l)
	a := f.granted(wait)
	assert.LessOrEqual(f.t, a.when.Sub(start), most, "the hand-over")
	f.release(a.lease)
}

// served waits until each waiter had the key, in any order.
func (f *fixture) served(waits []<-chan outcome) {
	f.t.Helper()
	var all sync.WaitGroup
	for _, w := range waits {
		all.Go(func() {
			if a := <-w; a.err != nil {
				f.t.Error(a.err)
			} else {
				f.release(a.lease)
			}
		})
	}
	all.Wait()
}

// named counts commands by name.
func named(commands []bson.Raw) map[string]int {
	n := map[string]int{}
	for _, c := range commands {
		n[c.Index(0).Key()]++
	}
	return n
}

func tailing(commands []bson.Raw) (n int) {
	for _, c := range commands {
		if is, _ := c.Lookup("tailable").BooleanOK(); is {
			n++
		}
	}
	return n
}

func TestOneCursorServesAllWaitersOfAProcess(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	holder := f.client()
	c, tap := f.tapped()
	inside.FeedLinger(c, feedBriefly)
	f.release(f.acquire(c, "free"))
	assert.Zero(t, tailing(tap.Take()), "opened though nobody waits")
	var held []*mongolock.Lease
	var waits []<-chan outcome
	for i := range 3 {
		key := fmt.Sprint("k", i)
		held = append(held, f.acquire(holder, key))
		for range 2 {
			waits = append(waits, f.inBackground(f.ctx(), c, key))
		}
	}
	for i, l := range held {
		f.asleep(c, l.Key(), true)
		start := time.Now()
		f.release(l)
		f.served(waits[2*i : 2*i+2])
		assert.LessOrEqual(t, time.Since(start), feedSoon(), "a wake-up and a hand-over")
	}
	sent := tap.Take()
	assert.Equal(t, 1, tailing(sent), "cursors for six waiters of three keys")
	f.until(time.Now().Add(5*time.Second), "the feed is closed", func() bool {
		sent = append(sent, tap.Take()...)
		return named(sent)["killCursors"] == 1
	})
	f.handsOver(holder, c, "k0", true, feedSoon())
	assert.Equal(t, 1, tailing(tap.Take()), "cursors for the next waiter")
}

// The driver limits a wait to the client's own timeout, unless each call says otherwise.
func TestAShortClientTimeoutDoesNotEndTheFeed(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	tap := &testserver.Tap{}
	c := f.clientOn(f.connect(f.uri, func(o *options.ClientOptions) { tap.On(o.SetTimeout(300 * time.Millisecond)) }))
	holder := f.client()
	l := f.acquire(holder, "k")
	wait := f.inBackground(f.ctx(), c, "k")
	f.asleep(c, "k", true)
	tap.Take()
	time.Sleep(time.Second) // real: an absence; few commands may be sent in this time
	// Without a wake-up it reads the key only as the cursor opens, and once more a moment later; a
	// poll may have begun before. Then falls the ping that follows a cursor's opening, and so may the
	// one getMore that waits for half a minute: the feed is open before it is sent. A wait of 300 ms
	// would need three.
	sent := tap.Take()
	assert.LessOrEqual(t, tailing(sent), 0, "%v in a second of waiting", named(sent))
	for name, n := range named(sent) {
		assert.LessOrEqual(t, n, map[string]int{"find": 3, "ping": 1, "getMore": 1}[name], "%ss in a second of waiting: %v", name, named(sent))
	}
	start := time.Now()
	f.release(l)
	assert.LessOrEqual(t, f.granted(wait).when.Sub(start), feedSoon(), "from the removal to the grant")
}

func TestAnUncappedFeedIsReplacedIfAllItsDocumentsAreOurs(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	for range 3 {
		_, err := f.wakes().InsertOne(f.ctx(), offerNotice("k"))
		require.NoError(t, err)
	}
	require.Equal(t, feedUncapped, f.wakesAre(), "capped all the same: the test shows nothing")
	f.handsOver(f.client(), f.client(), "k", true, feedSoon())
	assert.Equal(t, feedCapped, f.wakesAre(), "not capped yet")
}

func TestWaitersPollOnAServerWithoutCappedCollections(t *testing.T) {
	t.Parallel()
	const commandNotFound = 59
	f := newFixture(t)
	line := &testserver.Line{}
	line.Set(func(name string, _ bson.Raw) testserver.Fate {
		if name == "create" {
			return testserver.Fate{Instead: bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: commandNotFound}, {Key: "errmsg", Value: "no"}}}
		}
		return testserver.Fate{}
	})
	tap := &testserver.Tap{}
	c := f.clientOn(f.connect(f.uri, line.Through, tap.On))
	f.handsOver(f.client(mongolock.WithoutFeed()), c, "k", false, feedSoon())
	sent := tap.Take()
	assert.Zero(t, tailing(sent), "sent %v", named(sent))
}

func TestAFeedWithAForeignDocumentIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	foreignDocument := bson.D{{Key: "_id", Value: "x"}, {Key: "name", Value: "somebody's"}}
	_, err := f.wakes().InsertOne(f.ctx(), foreignDocument)
	require.NoError(t, err)
	var log logBuffer
	holder, c := f.client(), f.client(log.option())
	for range 3 {
		f.handsOver(holder, c, "k", false, feedSoon())
		f.handsOver(c, holder, "k", false, feedSoon())
	}
	assert.Equal(t, 1, log.count("waiters poll"), "lines that say that it polls")
	n, err := f.wakes().CountDocuments(f.ctx(), bson.D{})
	assert.EqualValues(t, 1, n, "%d documents beside the foreign one", n-1)
	assert.NoError(t, err, "%d documents beside the foreign one", n-1)
	assert.Equal(t, feedUncapped, f.wakesAre(), "%d documents beside the foreign one", n-1)
}

func TestAFeedDroppedWhileInUseIsRecreatedAndNoWaiterIsLost(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	holder := f.client()
	waiters := []*mongolock.Client{f.client(), f.client(), f.client()}
	for round := range 4 {
		l := f.acquire(holder, "k")
		var waits []<-chan outcome
		for _, c := range waiters {
			for range 3 {
				waits = append(waits, f.inBackground(f.ctx(), c, "k"))
			}
		}
		for _, c := range waiters {
			f.asleep(c, "k", true)
		}
		require.NoError(t, f.wakes().Drop(f.ctx()))
		time.Sleep(time.Duration(round) * 20 * time.Millisecond) // real: each round the release comes at another moment of the reopening
		start := time.Now()
		f.release(l)
		f.served(waits)
		assert.LessOrEqual(t, time.Since(start), feedFound(), "round %d: the last was served after", round)
	}
	for _, c := range waiters {
		f.handsOver(holder, c, "k", true, feedSoon())
	}
	assert.Equal(t, feedCapped, f.wakesAre(), "not capped")
}

func TestAFeedThatRollsOverLosesNoWaiter(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	holder, c := f.client(), f.client()
	var many []any
	for range 2000 {
		many = append(many, offerNotice(strings.Repeat("x", 500)))
	}
	for range 3 {
		l := f.acquire(holder, "k")
		wait := f.inBackground(f.ctx(), c, "k")
		f.asleep(c, "k", true)
		flood := make(chan error, 1)
		go func() {
			_, err := f.wakes().InsertMany(context.Background(), many)
			flood <- err
		}()
		time.Sleep(5 * time.Millisecond) // real: the flood is under way
		f.release(l)
		require.NoError(t, <-flood)
		over := time.Now()
		a := f.granted(wait)
		assert.LessOrEqual(t, a.when.Sub(over), feedSoon(), "from the flood to the grant")
		f.release(a.lease)
	}
	n, err := f.wakes().CountDocuments(f.ctx(), bson.D{})
	assert.NoError(t, err, "%d notices are kept", n)
	assert.LessOrEqual(t, n, int64(1000), "notices kept")
	f.handsOver(holder, c, "k", true, feedSoon())
}
