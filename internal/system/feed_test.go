package system

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/store"
	"github.com/stretchr/testify/require"
)

// feedSoon is what a waiter is given that is told, or that polls, on a machine which
// is busy with other things. One that is not told sleeps until the holder it saw
// should have run out: 20 s, the TTL here less a renewal's period, at least.
const feedSoon = 5 * time.Second

// newFeedRoom is a room on a server with a feed. (FerretDB has capped collections, and
// there is none on it: see refuseFerret. It is known by not being atomic.)
func newFeedRoom(t testing.TB) *mongoRoom {
	t.Helper()
	r := newMongoRoom(t, "capped", "atomic")
	r.server = mongoAsFound // here a feed is as a program's
	return r
}

// wakes is the collection of wake-ups of a room.
func (r *mongoRoom) wakes() *mongo.Collection {
	return r.coll.Database().Collection(r.coll.Name() + ".wake")
}

// freedNotice is a wake-up as clients send it.
func freedNotice(key string) bson.D {
	return bson.D{
		{Key: fieldMark, Value: 1}, {Key: "topic", Value: store.TopicLocks}, {Key: "key", Value: key}, {Key: "kind", Value: store.KindFreed},
	}
}

// What the collection of wake-ups is.
type feedState int

const (
	feedMissing feedState = iota
	feedCapped
	feedUncapped
)

func (r *mongoRoom) wakesAre() feedState {
	r.t.Helper()
	specs, err := r.coll.Database().ListCollectionSpecifications(r.ctx(), bson.D{{Key: "name", Value: r.wakes().Name()}})
	require.NoError(r.t, err)
	if len(specs) == 0 {
		return feedMissing
	}
	if capped, _ := specs[0].Options.Lookup("capped").BooleanOK(); capped {
		return feedCapped
	}
	return feedUncapped
}

// asleep waits until the client's waiters of a key have done all that there is to
// do, and so with an open feed if it is to have one.
func (r *mongoRoom) asleep(c *mongolock.Client, key string, feed bool) {
	r.t.Helper()
	r.until(time.Now().Add(20*time.Second), "asleep on "+key, func() bool {
		w := inside.Look(c, key)
		return w.Listening == feed && w.Seen && !w.Asking && !w.Woken
	})
}

// handsOver lets the key go from one client to another that waits for it, which
// takes at most so long.
func (r *mongoRoom) handsOver(from, to *mongolock.Client, key string, feed bool, most time.Duration) {
	r.t.Helper()
	l := r.acquire(from, key)
	wait := r.inBackground(r.ctx(), to, key)
	r.asleep(to, key, feed)
	start := time.Now()
	r.release(l)
	a := r.granted(wait)
	if took := a.when.Sub(start); took > most {
		r.t.Errorf("took %v to hand over, want at most %v", took, most)
	}
	r.release(a.lease)
}

// served waits until each of them had the key, in whatever order.
func (r *mongoRoom) served(waits []<-chan mongoAnswer) {
	r.t.Helper()
	var all sync.WaitGroup
	for _, w := range waits {
		all.Go(func() {
			if a := <-w; a.err != nil {
				r.t.Error(a.err)
			} else {
				r.release(a.lease)
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

func TestFeedIsOneCursorFromTheFirstWaiterToTheLast(t *testing.T) {
	t.Parallel()
	r := newFeedRoom(t)
	holder := r.client()
	c, tap := r.tapped()
	r.release(r.acquire(c, "free"))
	if sent := tap.Take(); tailing(sent) != 0 {
		t.Error("opened though nobody waits")
	}
	var held []*mongolock.Lease
	var waits []<-chan mongoAnswer
	for i := range 3 {
		key := fmt.Sprint("k", i)
		held = append(held, r.acquire(holder, key))
		for range 2 {
			waits = append(waits, r.inBackground(r.ctx(), c, key))
		}
	}
	for i, l := range held {
		r.asleep(c, l.Key(), true)
		start := time.Now()
		r.release(l)
		r.served(waits[2*i : 2*i+2])
		if took := time.Since(start); took > feedSoon {
			t.Errorf("%v for a wake-up and a hand-over", took)
		}
	}
	if sent := tap.Take(); tailing(sent) != 1 {
		t.Errorf("%d cursors for six waiters of three keys", tailing(sent))
	}
	inside.EndLinger(c)
	r.until(time.Now().Add(5*time.Second), "the feed is closed", func() bool {
		return !inside.Look(c, "").FeedOpen
	})
	if sent := named(tap.Take()); sent["killCursors"] != 1 || len(sent) != 1 {
		t.Errorf("closing it sent %v", sent)
	}
	r.handsOver(holder, c, "k0", true, feedSoon)
	if sent := tap.Take(); tailing(sent) != 1 {
		t.Errorf("%d cursors for the next waiter", tailing(sent))
	}
}

// The driver refuses to wait for longer than a client's own timeout, unless told
// otherwise call by call.
func TestFeedOutlastsAClientsShortTimeout(t *testing.T) {
	t.Parallel()
	r := newFeedRoom(t)
	tap := &testserver.Tap{}
	c := r.clientOn(r.connect(r.uri, func(o *options.ClientOptions) { tap.On(o.SetTimeout(300 * time.Millisecond)) }))
	holder := r.client()
	l := r.acquire(holder, "k")
	wait := r.inBackground(r.ctx(), c, "k")
	r.asleep(c, "k", true)
	tap.Take()
	time.Sleep(time.Second)
	// What it reads by itself is the key, a moment after its word and once more about
	// a second later: the second falls into this one or the next.
	if sent := tap.Take(); tailing(sent) > 0 || len(sent) > 2 {
		t.Errorf("%v in a second of waiting", named(sent))
	}
	start := time.Now()
	r.release(l)
	if took := r.granted(wait).when.Sub(start); took > feedSoon {
		t.Errorf("took %v", took)
	}
}

// Not lost though the answer that it makes stale comes after it: the reply to the
// head's look is held back until the key is free and the wake-up has come.
func TestFeedWakeUpThatComesWhileTheHeadIsAskingIsNotLost(t *testing.T) {
	t.Parallel()
	r := newFeedRoom(t)
	holder, line := r.client(), &testserver.Line{}
	c := r.clientOn(r.connect(r.uri, line.Through))
	l := r.acquire(holder, "k")
	wait := r.inBackground(r.ctx(), c, "k")
	r.asleep(c, "k", true)

	asked, pass := make(chan struct{}), make(chan struct{})
	var once sync.Once
	line.Set(func(name string, cmd bson.Raw) testserver.Fate {
		if name != "findAndModify" || cmd.Lookup("update", "$max", fieldWanted).IsZero() {
			return testserver.Fate{}
		}
		return testserver.Fate{Rewrite: func(reply bson.Raw) bson.D {
			once.Do(func() { close(asked); <-pass })
			return testserver.Edit(reply, nil)
		}}
	})
	inside.Freed(holder, "k") // for nothing
	r.await(asked, "the head looks")
	r.release(l)
	r.until(time.Now().Add(5*time.Second), "the wake-up has come", func() bool {
		return inside.Look(c, "k").Woken
	})
	start := time.Now()
	close(pass)
	if took := r.granted(wait).when.Sub(start); took > feedSoon {
		t.Errorf("took %v from the stale answer", took)
	}
}

func TestFeedThatIsNotCappedIsReplacedIfAllInItIsOurs(t *testing.T) {
	t.Parallel()
	r := newFeedRoom(t)
	for range 3 {
		if _, err := r.wakes().InsertOne(r.ctx(), freedNotice("k")); err != nil {
			t.Fatal(err)
		}
	}
	if r.wakesAre() != feedUncapped {
		t.Fatal("capped all the same: the test shows nothing")
	}
	r.handsOver(r.client(), r.client(), "k", true, feedSoon)
	if r.wakesAre() != feedCapped {
		t.Error("not capped yet")
	}
}

// What it does to FerretDB one does not do to it: see refuseFerret. There waiters poll.
func TestFeedIsNotForFerretDB(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	line := &testserver.Line{}
	line.Set(func(name string, cmd bson.Raw) testserver.Fate {
		switch {
		case (name == "hello" || name == "isMaster") && cmd.Lookup("$db").StringValue() != "admin": // the store's own, not the driver's
			return testserver.Fate{Rewrite: func(reply bson.Raw) bson.D { return testserver.Edit(reply, []string{"setName"}) }}
		case name == "buildInfo":
			return testserver.Fate{Rewrite: func(reply bson.Raw) bson.D {
				return testserver.Edit(reply, nil, bson.E{Key: "ferretdbVersion", Value: "v1.24.2"})
			}}
		}
		return testserver.Fate{}
	})
	tap := &testserver.Tap{}
	c := r.clientOn(r.connect(r.uri, line.Through, tap.On))
	for range 3 {
		r.handsOver(r.client(mongolock.WithoutFeed()), c, "k", false, feedSoon)
	}
	if sent := tap.Take(); tailing(sent) != 0 || named(sent)["buildInfo"] > 1 {
		t.Errorf("sent %v", named(sent))
	}
}

func TestFeedWithAStrangersDocumentIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newFeedRoom(t)
	stranger := bson.D{{Key: "_id", Value: "x"}, {Key: "name", Value: "somebody's"}}
	if _, err := r.wakes().InsertOne(r.ctx(), stranger); err != nil {
		t.Fatal(err)
	}
	var log logbook
	holder, c := r.client(), r.client(log.option())
	for range 3 {
		r.handsOver(holder, c, "k", false, feedSoon)
		r.handsOver(c, holder, "k", false, feedSoon)
	}
	if n := log.count("waiters poll"); n != 1 {
		t.Errorf("said %d times that it polls", n)
	}
	if n, err := r.wakes().CountDocuments(r.ctx(), bson.D{}); n != 1 || err != nil || r.wakesAre() != feedUncapped {
		t.Errorf("%d documents beside a stranger's, %v", n-1, err)
	}
}

func TestFeedDroppedWhileInUseIsMadeAnewAndLosesNobody(t *testing.T) {
	t.Parallel()
	r := newFeedRoom(t)
	holder := r.client()
	waiters := []*mongolock.Client{r.client(), r.client(), r.client()}
	for round := range 4 {
		l := r.acquire(holder, "k")
		var waits []<-chan mongoAnswer
		for _, c := range waiters {
			for range 3 {
				waits = append(waits, r.inBackground(r.ctx(), c, "k"))
			}
		}
		for _, c := range waiters {
			r.asleep(c, "k", true)
		}
		if err := r.wakes().Drop(r.ctx()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(round) * 20 * time.Millisecond)
		start := time.Now()
		r.release(l)
		r.served(waits)
		if took := time.Since(start); took > feedSoon {
			t.Errorf("round %d: the last was served after %v", round, took)
		}
	}
	for _, c := range waiters {
		r.handsOver(holder, c, "k", true, feedSoon)
	}
	if r.wakesAre() != feedCapped {
		t.Error("not capped")
	}
}

func TestFeedThatRollsOverLosesNobody(t *testing.T) {
	t.Parallel()
	r := newFeedRoom(t)
	holder, c := r.client(), r.client()
	var many []any
	for range 2000 {
		many = append(many, freedNotice(strings.Repeat("x", 500)))
	}
	for range 3 {
		l := r.acquire(holder, "k")
		wait := r.inBackground(r.ctx(), c, "k")
		r.asleep(c, "k", true)
		flood := make(chan error, 1)
		go func() {
			_, err := r.wakes().InsertMany(context.Background(), many)
			flood <- err
		}()
		time.Sleep(5 * time.Millisecond)
		r.release(l)
		if err := <-flood; err != nil {
			t.Fatal(err)
		}
		over := time.Now()
		a := r.granted(wait)
		if took := a.when.Sub(over); took > feedSoon {
			t.Errorf("granted %v after the flood", took)
		}
		r.release(a.lease)
	}
	if n, err := r.wakes().CountDocuments(r.ctx(), bson.D{}); err != nil || n > 1000 {
		t.Errorf("%d notices are kept, %v", n, err)
	}
	r.handsOver(holder, c, "k", true, feedSoon)
}

func TestFeedThatIsLostIsPolledForAndComesBack(t *testing.T) {
	t.Parallel()
	r := newFeedRoom(t)
	var log logbook
	holder := r.client()
	c, proxy := r.behind(withRetries, log.option())
	for range 2 {
		l := r.acquire(holder, "k")
		wait := r.inBackground(r.ctx(), c, "k")
		r.asleep(c, "k", true)
		proxy.Cut()
		time.Sleep(500 * time.Millisecond)
		r.release(l) // and nobody hears it
		time.Sleep(500 * time.Millisecond)
		proxy.Restore()
		back := time.Now()
		a := r.granted(wait)
		if took := a.when.Sub(back); took > feedSoon {
			t.Errorf("granted %v after the way was open again", took)
		}
		r.release(a.lease)
		r.handsOver(holder, c, "k", true, feedSoon)
	}
	if n := log.count("wake-ups are interrupted"); n != 1 {
		t.Errorf("said %d times within seconds that they were interrupted", n)
	}
}

func TestFeedThatMayNotBeMadeIsDoneWithout(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "auth=1", "capped", "atomic", "roles")
	r := newMongoRoomAt(t, server.URI)
	db := r.coll.Database()
	role := bson.D{
		{Key: "createRole", Value: "locker"}, {Key: "roles", Value: bson.A{}},
		{Key: "privileges", Value: bson.A{bson.D{
			{Key: "resource", Value: bson.D{{Key: "db", Value: db.Name()}, {Key: "collection", Value: r.coll.Name()}}},
			{Key: "actions", Value: bson.A{"find", "insert", "update", "remove"}},
		}}},
	}
	user := bson.D{{Key: "createUser", Value: "app"}, {Key: "pwd", Value: "app"}, {Key: "roles", Value: bson.A{"locker"}}}
	for _, command := range []bson.D{role, user} {
		if err := db.RunCommand(r.ctx(), command).Err(); err != nil {
			t.Fatal(err)
		}
	}
	uri, err := url.Parse(server.URI)
	if err != nil {
		t.Fatal(err)
	}
	uri.User = url.UserPassword("app", "app")
	query := uri.Query()
	query.Set("authSource", db.Name())
	uri.RawQuery = query.Encode()
	r.uri = uri.String()

	var log logbook
	one, two := r.client(), r.client(log.option())
	for range 3 {
		r.handsOver(one, two, "k", false, feedSoon)
		r.handsOver(two, one, "k", false, feedSoon)
	}
	if n := log.count("waiters poll"); n != 1 {
		t.Errorf("said %d times that it polls", n)
	}
	if r.wakesAre() != feedMissing {
		t.Error("made all the same: the test shows nothing")
	}
	r.until(time.Now().Add(time.Second), "does not ask to announce any more", func() bool {
		return !inside.Look(two, "").Announces
	})
}

func TestFeedAndFiftyWaitersOutliveTheServer(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "", "capped", "atomic", "process", "crash")
	r := newMongoRoomAt(t, server.URI)
	holder := r.client()
	l := r.acquire(holder, "k")
	var taps []*testserver.Tap
	var clients []*mongolock.Client
	var waits []<-chan mongoAnswer
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	for range 5 {
		c, tap := r.tapped()
		taps, clients = append(taps, tap), append(clients, c)
		for range 10 {
			waits = append(waits, r.inBackground(ctx, c, "k"))
		}
	}
	for i, c := range clients {
		r.asleep(c, "k", true)
		taps[i].Take()
	}
	start := time.Now()
	server.Do("kill")
	time.Sleep(time.Second)
	server.Do("restart")
	back := time.Now()
	for _, c := range clients {
		r.asleep(c, "k", true)
	}
	t.Logf("down for %v, all listen again %v after", back.Sub(start), time.Since(back))
	for i := range clients {
		if sent := taps[i].Take(); len(sent) > 60 {
			t.Errorf("client %d sent %v meanwhile", i, named(sent))
		} else {
			t.Logf("client %d sent %v meanwhile", i, named(sent))
		}
	}
	r.release(l)
	r.served(waits)
	t.Logf("all served %v after the server was back", time.Since(back))
}

// Every removal of a holder from a document that carries a word is announced: the
// waiter sleeps until its holder should have run out, or hears of it.
func TestFeedTellsOfEveryRemoval(t *testing.T) {
	t.Parallel()
	removals := map[string]func(r *mongoRoom, c *mongolock.Client, l *mongolock.Lease){
		"break": func(r *mongoRoom, _ *mongolock.Client, _ *mongolock.Lease) {
			if _, err := r.client().Break(r.ctx(), "k", "test", 0); err != nil {
				r.t.Error(err)
			}
		},
		"close":          func(_ *mongoRoom, c *mongolock.Client, _ *mongolock.Lease) { _ = c.Close() },
		"end of MaxHold": func(*mongoRoom, *mongolock.Client, *mongolock.Lease) {},
		"undo": func(r *mongoRoom, c *mongolock.Client, l *mongolock.Lease) {
			inside.Undo(l, time.Minute)
		},
	}
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			r := newFeedRoom(t)
			holder, waiter := r.client(mongolock.WithMargin(50*time.Millisecond)), r.client()
			var opts []mongolock.AcquireOption
			if name == "end of MaxHold" {
				opts = append(opts, mongolock.MaxHold(2*time.Second))
			}
			l := r.acquire(holder, "k", opts...)
			wait := r.inBackground(r.ctx(), waiter, "k")
			r.asleep(waiter, "k", true)
			remove(r, holder, l)
			if name == "end of MaxHold" {
				<-l.Done()
			}
			start := time.Now()
			if took := r.granted(wait).when.Sub(start); took > feedSoon {
				t.Errorf("took %v", took)
			}
		})
	}
}

// The image that says whether somebody waits went with the reply.
func TestFeedTellsOfAReleaseWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	r := newFeedRoom(t)
	waiter := r.client()
	holder, proxy := r.behind(noRetries)
	l := r.acquire(holder, "k")
	wait := r.inBackground(r.ctx(), waiter, "k")
	r.asleep(waiter, "k", true)
	r.on(proxy, mongoReleases.Nth(1), faultproxy.DropReply())
	start := time.Now()
	if err := l.Release(); !errors.Is(err, mongolock.ErrOutcomeUnknown) {
		t.Errorf("the release whose reply was lost says %v", err)
	}
	if took := r.granted(wait).when.Sub(start); took > feedSoon {
		t.Errorf("took %v", took)
	}
}
