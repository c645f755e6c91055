package mongostore

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

func withoutRetries(o *options.ClientOptions) { o.SetRetryWrites(false) }

// ourHello tells the store's own hello from the driver's, which asks admin.
func ourHello(name string, c bson.Raw) bool {
	db, _ := c.Lookup("$db").StringValueOK()
	return (name == "hello" || name == "isMaster") && db != "admin"
}

func refusal(code int, message string) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: message}}
}

func TestAServerWithoutHelloIsAskedTheOldWay(t *testing.T) {
	t.Parallel()
	line := &testserver.Line{}
	f := newFixture(t, line.Through)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if name == "hello" && ourHello(name, c) {
			return testserver.Fate{Instead: refusal(59, "no such command: 'hello'")}
		}
		return testserver.Fate{}
	})
	c := exclusiveClaim("k", 30*time.Second)
	f.acquire(f.store, c)
	assert.Equal(t, slices.Insert(firstClaim("findAndModify"), 2, "isMaster"), f.tap.TakeNames())
}

func TestAServerWithoutAJournalIsNotAskedToWaitForOne(t *testing.T) {
	t.Parallel()
	f, line := newFixtureOnLine(t)
	line.Set(func(_ string, c bson.Raw) testserver.Fate {
		if j, _ := c.Lookup("writeConcern", "j").BooleanOK(); j {
			return testserver.Fate{Instead: refusal(2, "cannot use 'j' option when a host does not have journaling enabled")}
		}
		return testserver.Fate{}
	})
	c := exclusiveClaim("k", 30*time.Second)
	f.acquire(f.store, c)
	sent := f.tap.Take()
	require.Len(t, sent, 2, "the first acquire")
	for i, want := range []string{"{w: majority, j: true}", "{w: majority}"} {
		assert.Equal(t, want, renderedValue(sent[i].Lookup("writeConcern")))
	}
	r := f.store.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: c.TTL}, {Ref: exclusiveClaim("j", 1).Ref, TTL: c.TTL}})
	assert.NoError(t, r[0].Err)
	for _, cmd := range f.tap.Take() {
		assert.True(t, cmd.Lookup("writeConcern", "j").IsZero(), "still asks for a journal")
	}
}

func TestWithoutOperationTimeATokenTakesOneMoreCommand(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string][]string{
		"neither":          {"operationTime", "$clusterTime"},
		"no operationTime": {"operationTime"},
		"no $clusterTime":  {"$clusterTime"},
	} {
		t.Run(name, func(t *testing.T) {
			line := &testserver.Line{}
			line.Set(func(string, bson.Raw) testserver.Fate {
				return testserver.Fate{Rewrite: func(r bson.Raw) bson.D { return testserver.Edit(r, missing) }}
			})
			f := newFixture(t, line.Through)
			c := exclusiveClaim("k", 30*time.Second)
			g := f.acquire(f.store, c)
			sent := rendered(f.tap.Take())
			require.Len(t, sent, len(firstClaim("an upsert", "a stamp")))
			assert.Equal(t, "findAndModify new: true query: {_id: k, mongolock: 1, holders."+c.ID+": {$exists: true}} "+
				"update: {$currentDate: {at: true, stamp: {$type: timestamp}}} writeConcern: {w: majority, j: true}", sent[len(sent)-1])
			r := f.document("k")
			assert.Equal(t, server.Token(r.Stamp), g.Token, "token %d, stamp %v", g.Token, r.Stamp)
			assert.Positive(t, g.Token, "token %d, stamp %v", g.Token, r.Stamp)
		})
	}
}

// asRouter makes the store believe that it talks to a mongos.
func asRouter(t testing.TB, collStats bson.D) (*fixture, *testserver.Line) {
	line := &testserver.Line{}
	f := newFixture(t, line.Through)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		switch {
		case ourHello(name, c):
			return testserver.Fate{Rewrite: func(r bson.Raw) bson.D {
				return testserver.Edit(r, []string{"setName", "msg", "localTime"},
					bson.E{Key: "msg", Value: "isdbgrid"},
					bson.E{Key: "localTime", Value: time.Now().Add(time.Hour)}) // another machine's clock
			}}
		case name == "collStats":
			return testserver.Fate{Instead: collStats}
		}
		return testserver.Fate{}
	})
	return f, line
}

var unsharded = bson.D{{Key: "ok", Value: 1}, {Key: "sharded", Value: false}}

func TestNothingIsTakenOverByARoutersClock(t *testing.T) {
	t.Parallel()
	f, _ := asRouter(t, unsharded)
	holder := exclusiveClaim("k", 30*time.Second)
	f.acquire(f.another(), holder)
	_, err := f.store.Acquire(f.ctx(), exclusiveClaim("k", time.Second))
	require.ErrorIs(t, err, store.ErrHeld, "by a clock an hour ahead")
	assert.Equal(t, holder.ID, f.document("k").Holders[0].ID, "taken from a live holder by the router's clock")
}

// The clock of a shard may be another one than the clock that wrote the date.
func TestThroughARouterNoDateEndsAHolder(t *testing.T) {
	t.Parallel()
	f, _ := asRouter(t, unsharded)
	dead := exclusiveClaim("k", 30*time.Second)
	f.acquire(f.another(), dead)
	f.expire(dead.Ref, time.Minute+time.Second) // rule 3 would end it behind no router
	_, err := f.store.Acquire(f.ctx(), exclusiveClaim("k", 30*time.Second))
	require.ErrorIs(t, err, store.ErrHeld)
	assert.Equal(t, dead.ID, f.document("k").Holders[0].ID)
}

func TestThroughARouterABulkAsksForNoTime(t *testing.T) {
	t.Parallel()
	f, _ := asRouter(t, unsharded)
	one, two := exclusiveClaim("k", 30*time.Second), exclusiveClaim("j", 30*time.Second)
	f.acquire(f.store, one)
	f.acquire(f.store, two)
	f.tap.Take()
	for _, r := range f.store.Renew(f.ctx(), []store.Renewal{{Ref: one.Ref, TTL: one.TTL}, {Ref: two.Ref, TTL: two.TTL}}) {
		assert.NoError(t, r.Err, "%+v", r)
		assert.Equal(t, 30*time.Second, r.Left, "no date counts: rivals wait for its silence")
	}
	sent := f.tap.Take()
	assert.Len(t, sent, 1, "sent\n%s", rendered(sent))
}

// shardedBy returns what a mongos says of a collection that is sharded by that key.
func shardedBy(f *fixture, line *testserver.Line, key bson.D) {
	line.Also(func(_ string, c bson.Raw) (testserver.Fate, bool) {
		db, _ := c.Lookup("$db").StringValueOK()
		switch {
		case db != "config":
			return testserver.Fate{}, false
		case key == nil:
			return testserver.Fate{Instead: bson.D{
				{Key: "ok", Value: 0}, {Key: "code", Value: 13}, {Key: "codeName", Value: "Unauthorized"}, {Key: "errmsg", Value: "not allowed"},
			}}, true
		}
		docs := bson.A{bson.D{{Key: "_id", Value: f.coll.Database().Name() + "." + f.coll.Name()}, {Key: "key", Value: key}}}
		return testserver.Fate{Instead: bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{
			{Key: "id", Value: int64(0)}, {Key: "ns", Value: "config.collections"}, {Key: "firstBatch", Value: docs},
		}}}}, true
	})
}

func TestACollectionShardedByIDIsUsed(t *testing.T) {
	t.Parallel()
	for _, key := range []bson.D{{{Key: "_id", Value: 1}}, {{Key: "_id", Value: "hashed"}}} {
		f, line := asRouter(t, bson.D{{Key: "ok", Value: 1}, {Key: "sharded", Value: true}})
		shardedBy(f, line, key)
		f.acquire(f.store, exclusiveClaim("k", time.Second))
	}
}

func TestACollectionShardedByAnythingElseIsRefused(t *testing.T) {
	t.Parallel()
	for want, key := range map[string]bson.D{
		"is sharded by":            {{Key: "region", Value: 1}},
		"sharded by _id, or not":   {{Key: "_id", Value: 1}, {Key: "region", Value: 1}},
		"may not see by which key": nil,
	} {
		f, line := asRouter(t, bson.D{{Key: "ok", Value: 1}, {Key: "sharded", Value: true}})
		shardedBy(f, line, key)
		_, err := f.store.Acquire(f.ctx(), exclusiveClaim("k", time.Second))
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, store.ErrNotApplied)
		assert.True(t, f.absent("k"), "answered %v", err)
	}
}

func TestACollectionThatIsShardedLaterIsNoticed(t *testing.T) {
	t.Parallel()
	f, line := asRouter(t, unsharded)
	var passed time.Duration
	monotonic := server.Monotonic()
	f.store = open(f.store.base.W1, config{noIndex: true, logger: slog.New(slog.DiscardHandler), now: func() server.Moment {
		return monotonic().Add(passed)
	}})
	f.acquire(f.store, exclusiveClaim("before", time.Second))
	line.Also(func(name string, _ bson.Raw) (testserver.Fate, bool) {
		return testserver.Fate{Instead: bson.D{{Key: "ok", Value: 1}, {Key: "sharded", Value: true}}}, name == "collStats"
	})
	shardedBy(f, line, bson.D{{Key: "region", Value: 1}})
	f.acquire(f.store, exclusiveClaim("soon", time.Second))
	passed = 6 * time.Minute
	_, err := f.store.Acquire(f.ctx(), exclusiveClaim("later", time.Second))
	assert.ErrorContains(t, err, "is sharded by")
	assert.ErrorIs(t, err, store.ErrNotApplied)
}

func TestAStepOfTheServersClockIsLoggedAndNoDateIsTrustedAfterIt(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	f := newFixture(t)
	var passed time.Duration
	monotonic := server.Monotonic()
	var log bytes.Buffer
	f.store = open(f.store.base.W1, config{noIndex: true, logger: slog.New(slog.NewTextHandler(&log, nil)), now: func() server.Moment {
		return monotonic().Add(passed)
	}})
	f.acquire(f.store, exclusiveClaim("before", time.Minute))
	assert.Empty(t, log.String())
	passed = 6 * time.Minute // which the server's clock does not show: it was stepped back
	before := f.document("before").Holders[0].Epoch
	f.acquire(f.store, exclusiveClaim("after", time.Minute))
	assert.Contains(t, log.String(), "clock was stepped")
	assert.NotEqual(t, before, f.document("after").Holders[0].Epoch, "labelled with the election all the same")
}

func TestTheStrictStableAPIIsEnough(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "apistrict")
	f := newFixture(t, func(o *options.ClientOptions) {
		o.SetServerAPIOptions(options.ServerAPI(options.ServerAPIVersion1).SetStrict(true).SetDeprecationErrors(true))
	})
	f.store.indexed.Store(false)
	c, d := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
	f.acquire(f.store, c)
	for _, cmd := range f.tap.Take() {
		strict, _ := cmd.Lookup("apiStrict").BooleanOK()
		require.True(t, strict, "%s is not sent strictly: the test shows nothing", cmd.Index(0).Key())
	}
	waiting := f.waits(f.store, d)
	assert.NoError(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: c.TTL}, {Ref: d.Ref, TTL: c.TTL}})[0].Err)
	_, err := f.store.Look(f.ctx(), []string{"k", "j"})
	assert.NoError(t, err)
	for _, err := range f.store.List(f.ctx(), "") {
		assert.NoError(t, err)
	}
	_, err = f.store.Transfer(f.ctx(), c.Ref, d)
	assert.NoError(t, err)
	assert.NoError(t, f.store.Break(f.ctx(), d.Ref, "x", false))
	err = released(f.ctx(), f.store, d.Ref, 0)
	assert.NoError(t, err)
	_, err = f.store.Leave(f.ctx(), "k", waiting.Place)
	assert.NoError(t, err)
	assert.NoError(t, f.store.EnsureIndex(f.ctx()))
}

// shifted returns a store whose server's clock is off by that much, in every reply.
func (f *fixture) shifted(by time.Duration) *Store {
	line := &testserver.Line{}
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Rewrite: func(r bson.Raw) bson.D {
			if at, ok := server.Time(r.Lookup("localTime")); ok && ourHello(name, c) {
				return testserver.Edit(r, []string{"localTime"}, bson.E{Key: "localTime", Value: at.Add(by)})
			}
			value, ok := r.Lookup("value").DocumentOK()
			if at, timed := server.Time(value.Lookup("at")); ok && timed {
				return testserver.Edit(r, []string{"value"}, bson.E{Key: "value", Value: testserver.Edit(value, []string{"at"}, bson.E{Key: "at", Value: at.Add(by)})})
			}
			return testserver.Edit(r, nil)
		}}
	})
	return f.another(line.Through)
}

func TestClocksAnHourApartChangeNothing(t *testing.T) {
	t.Parallel()
	ttl := pace.Of(600 * time.Millisecond)
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		f := newFixture(t)
		one, two := f.shifted(by), f.shifted(by)
		sent := time.Now() // a grant is trusted from before its request
		g := f.acquire(one, exclusiveClaim("k", ttl))
		assert.GreaterOrEqual(t, g.Left, ttl/2, "%v apart: trusted for; what is less is written again", by)
		assert.LessOrEqual(t, g.Left, ttl, "%v apart: trusted for", by)
		assert.WithinDuration(t, sent.Add(ttl+by), f.end("k"), time.Minute, "%v apart: the end by the server's clock", by)
		until := sent.Add(time.Minute)
		for {
			_, err := two.Acquire(f.ctx(), exclusiveClaim("k", ttl))
			if err == nil {
				break
			}
			require.ErrorIs(t, err, store.ErrHeld)
			require.True(t, time.Now().Before(until), "%v apart: not taken over in a minute", by)
			time.Sleep(5 * time.Millisecond) // real: between two tries
		}
		assert.GreaterOrEqual(t, time.Since(sent), g.Left, "%v apart: taken over while it was trusted", by)
	}
}

func TestAnUnreachableServerIsClearWithinTheCallersTime(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(t.Context()) })
	s := open(client.Database("x").Collection("locks"), config{})
	ctx, cancel := contextWithin(t, 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = s.Acquire(ctx, exclusiveClaim("k", time.Second))
	assert.ErrorIs(t, err, store.ErrNotApplied, "after %v", time.Since(start))
	assert.LessOrEqual(t, time.Since(start), pace.Of(time.Second), "after %v: %v", time.Since(start), err)
	err = released(ctx, s, exclusiveClaim("k", time.Second).Ref, 0)
	assert.Error(t, err, "released on a server that is not there")
}

func TestANilCollectionIsRefused(t *testing.T) {
	t.Parallel()
	s, err := New(nil)
	assert.Error(t, err)
	assert.Nil(t, s, "%v, %v", s, err)
}
