package mongostore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// What each step of a lease sends stands in the vectors, docs/internals/vectors. These tests are of what
// does not: how many commands, in which sessions, under whose concerns.

// firstClaim is what a client sends before its first claim: it asks whether the collection is
// capped.
func firstClaim(then ...string) []string {
	return append([]string{"listCollections"}, firstContact(then...)...)
}

// firstContact is what a client sends before its first command: through a router it also
// asks whether the collection is sharded.
func firstContact(then ...string) []string {
	first := []string{"hello"}
	if testserver.Has("router") {
		first = append(first, "collStats")
	}
	return append(first, then...)
}

func TestTheFirstClaimsOfAClientShareOneHello(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			_, err := f.store.Acquire(f.ctx(), exclusiveClaim(rand.Text(), 30*time.Second))
			assert.NoError(t, err)
		})
	}
	all.Wait()
	sent := map[string]int{}
	for _, c := range f.tap.Take() {
		elements, err := c.Elements()
		require.NoError(t, err)
		sent[elements[0].Key()]++
	}
	want := map[string]int{"listCollections": 1, "hello": 1, "findAndModify": 32}
	if testserver.Has("router") {
		want["collStats"] = 1
	}
	assert.Equal(t, want, sent)
}

func TestALookAtSeveralKeysAndAListAreAFindEach(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	f := newFixture(t)
	f.acquire(f.store, exclusiveClaim("warm", time.Second))
	f.tap.Take()
	_, err := f.store.Look(f.ctx(), []string{"k", "j", "k"})
	require.NoError(t, err)
	for range f.store.List(f.ctx(), "a.") {
	}
	assert.Equal(t, []string{
		"find batchSize: 3 filter: {_id: {$in: [j, k]}} readConcern: {level: local}",
		"find batchSize: 500 filter: {_id: {$gte: a., $lt: a/}, mongolock: 1} sort: {_id: 1} readConcern: {level: local}",
	}, rendered(f.tap.Take()))
}

// placed returns the claim of a waiter.
func (f *fixture) placed(key string) store.Claim {
	c := exclusiveClaim(key, 30*time.Second)
	c.Place = store.NewPlace(c.Mode, c.Limit, 1, "here")
	return c
}

func TestARoundOfRenewalsIsOneBulkAndOneHello(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	f := newFixture(t)
	var batch []store.Renewal
	for i := range 1000 {
		c := exclusiveClaim(fmt.Sprintf("k%d", i), 5*time.Minute)
		if i%250 == 0 { // the others are inserted by hand
			f.acquire(f.store, c)
		}
		batch = append(batch, store.Renewal{Ref: c.Ref, TTL: c.TTL})
	}
	f.plant(batch)
	f.tap.Take()
	for i, r := range f.store.Renew(t.Context(), batch) {
		require.NoError(t, r.Err, "renewal %d: %+v", i, r)
		require.GreaterOrEqual(t, r.Left, 5*time.Minute-pace.Of(time.Second), "renewal %d: %+v", i, r)
	}
	sent := f.tap.Take()
	require.Len(t, sent, 2, "commands for a round that all matched")
	require.Equal(t, "update", sent[0].Index(0).Key(), "%d commands for a round that all matched", len(sent))
	clock := "hello" // through a router its time is not the documents'
	if testserver.Has("router") {
		clock = "find"
	}
	require.Equal(t, clock, sent[1].Index(0).Key(), "%d commands for a round that all matched", len(sent))
	got, _ := sent[0].Lookup("ordered").BooleanOK()
	assert.False(t, got, "the bulk is ordered: one failure would stop the rest")
	// The store remembers the first, and knows that it has not run out: that is as in a renewal of one, which
	// stands in the vectors.
	remembered, unknown := sent[0].Lookup("updates", "0").Document(), sent[0].Lookup("updates", "1").Document()
	require.NoError(t, f.store.Renew(t.Context(), batch[:1])[0].Err)
	alone := f.tap.Take()[0]
	assert.Equal(t, renderedValue(alone.Lookup("query")), renderedValue(remembered.Lookup("q")))
	assert.Equal(t, renderedValue(alone.Lookup("update")), renderedValue(remembered.Lookup("u")))
	assert.Contains(t, renderedValue(unknown.Lookup("q")), "$or: [{holders."+batch[1].ID+".expireAt: {$gt: DATE}}, ", "whether it has run out")

	gone := batch[500]
	_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: gone.Key}})
	require.NoError(t, err)
	for i, r := range f.store.Renew(t.Context(), batch) {
		if want := i == 500; errors.Is(r.Err, store.ErrGone) != want || !want && r.Err != nil {
			t.Fatalf("renewal %d: %+v", i, r)
		}
	}
	sent = f.tap.Take()
	if !testserver.Has("router") { // there the find tells both
		require.Len(t, sent, 3, "commands for a round that came short")
	}
	last := sent[len(sent)-1]
	assert.Equal(t, "find", last.Index(0).Key(), "%d commands for a round that came short", len(sent))
	assert.Greater(t, last.Lookup("batchSize").AsInt64(), int64(1000), "%d commands for a round that came short", len(sent))
}

// plant inserts holders by hand under free keys.
func (f *fixture) plant(batch []store.Renewal) {
	f.t.Helper()
	var docs []any
	end := time.Now().Add(30 * time.Second)
	for _, r := range batch {
		docs = append(docs, bson.D{
			{Key: "_id", Value: r.Key}, {Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"},
			{Key: "holders", Value: bson.D{{Key: r.ID, Value: bson.D{{Key: "owner", Value: "o"}, {Key: "note", Value: ""}, {Key: "since", Value: time.Now()}, {Key: "expireAt", Value: end}, {Key: "ttl", Value: 30_000}, {Key: "beat", Value: int64(1)}, {Key: "epoch", Value: bson.NilObjectID}}}}},
			{Key: "expireAt", Value: end}, {Key: "rev", Value: int64(1)}, {Key: "at", Value: time.Now()},
		})
	}
	_, err := f.coll.InsertMany(f.ctx(), docs, options.InsertMany().SetOrdered(false))
	if err != nil && len(batch) == 1 {
		f.t.Fatal(err)
	}
}

// The concerns of the caller's client and collection have no effect.
func TestTheCallersConcernsAndReadPreferenceAreNotUsed(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime")
	f := newFixture(t)
	client := testserver.Client(t, func(o *options.ClientOptions) {
		f.tap.On(o)
		o.SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.SecondaryPreferred())
	})
	coll := client.Database(f.coll.Database().Name()).Collection(f.coll.Name(), options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	s := open(coll, config{noIndex: true})
	c := exclusiveClaim("k", 30*time.Second)
	f.acquire(s, c)
	_, _ = s.Acquire(f.ctx(), exclusiveClaim("k", time.Second))
	for _, cmd := range f.tap.Take() {
		switch cmd.Index(0).Key() {
		case "findAndModify":
			assert.Equal(t, "{w: majority, j: true}", renderedValue(cmd.Lookup("writeConcern")), "write concern")
		case "find":
			assert.Equal(t, "{level: local}", renderedValue(cmd.Lookup("readConcern")), "read concern")
			if pref := cmd.Lookup("$readPreference"); !pref.IsZero() && !strings.Contains(pref.String(), `"primary"`) {
				t.Errorf("read preference %s", pref)
			}
		}
	}
}

// A release that one node acknowledges may be lost with that node. That is acceptable for a
// lease of a minute, not for one of an hour.
func TestALongLeaseIsReleasedByMajority(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime")
	f := newFixture(t)
	for ttl, want := range map[time.Duration]string{30 * time.Second: "{w: 1}", time.Hour: "{w: majority}"} {
		c := exclusiveClaim("k", ttl)
		f.acquire(f.store, c)
		f.tap.Take()
		err := released(f.ctx(), f.store, c.Ref, 0)
		require.NoError(t, err)
		sent := f.tap.Take()
		require.Len(t, sent, 1, "%v", ttl)
		assert.Equal(t, want, renderedValue(sent[0].Lookup("writeConcern")), "the release of %v", ttl)
	}
}

func TestNoCommandRunsInTheCallersSession(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f := newFixture(t)
	user, err := f.store.base.W1.Database().Client().StartSession()
	require.NoError(t, err)
	defer user.EndSession(f.ctx())
	inUsers := mongo.NewSessionContext(f.ctx(), user)
	mine, next, late := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
	late.Place = store.NewPlace(store.Exclusive, 1, 1, "here")

	_, err = f.store.Acquire(inUsers, mine)
	f.inNoSession("acquire", user, err, nil)
	_, err = f.store.Acquire(inUsers, late)
	sent := f.inNoSession("a waiter", user, err, store.ErrHeld)
	a, w := sent[0].Lookup("lsid"), sent[1].Lookup("lsid")
	assert.True(t, a.Equal(w), "the line was joined in another session than the claim's: a late twin would not be refused")
	if a, w := sent[0].Lookup("txnNumber").AsInt64(), sent[1].Lookup("txnNumber").AsInt64(); w <= a {
		t.Errorf("the place's number %d is not above the claim's %d", w, a)
	}
	_, err = f.store.Transfer(inUsers, mine.Ref, next)
	f.inNoSession("transfer", user, err, nil)
	err = f.store.Renew(inUsers, []store.Renewal{{Ref: next.Ref, TTL: next.TTL}})[0].Err
	f.inNoSession("renew", user, err, nil)
	err = f.store.Renew(inUsers, []store.Renewal{{Ref: next.Ref, TTL: next.TTL}, {Ref: exclusiveClaim("j", 1).Ref, TTL: next.TTL}})[0].Err
	f.inNoSession("renew many", user, err, nil)
	_, err = f.store.Look(inUsers, []string{"k"})
	f.inNoSession("look", user, err, nil)
	for _, err = range f.store.List(inUsers, "") {
		break
	}
	f.inNoSession("list", user, err, nil)
	err = f.store.Break(inUsers, next.Ref, "x", false)
	f.inNoSession("break", user, err, nil)
	err = f.store.EnsureIndex(inUsers)
	f.inNoSession("ensure index", user, err, nil)
	_, err = f.store.Undo(inUsers, next.Ref, nil)
	f.inNoSession("undo", user, err, nil)
	err = released(inUsers, f.store, next.Ref, 0)
	f.inNoSession("release", user, err, store.ErrGone)
	_, err = f.store.Leave(inUsers, "k", late.Place)
	f.inNoSession("leave", user, err, nil)
}

func (f *fixture) inNoSession(what string, user callerSession, err, want error) []bson.Raw {
	f.t.Helper()
	require.ErrorIs(f.t, err, want, "%s", what)
	sent := f.tap.Take()
	for _, cmd := range sent {
		assert.NotEqual(f.t, string(user.ID()), string(cmd.Lookup("lsid").Value), "%s sent %s in the caller's session", what, cmd.Index(0).Key())
		assert.True(f.t, cmd.Lookup("readConcern", "afterClusterTime").IsZero(), "%s is causally consistent", what)
	}
	return sent
}

type callerSession interface{ ID() bson.Raw }

func TestALockAcquiredInATransactionIsGrantedOutsideIt(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "transactions")
	f := newFixture(t)
	client := f.store.base.W1.Database().Client()
	data := testserver.Collection(t, testserver.Client(t))
	tapped := client.Database(data.Database().Name()).Collection(data.Name())
	_, err := data.InsertOne(f.ctx(), bson.D{{Key: "_id", Value: "seed"}})
	require.NoError(t, err)
	session, err := client.StartSession()
	require.NoError(t, err)
	defer session.EndSession(f.ctx())
	ctx := mongo.NewSessionContext(f.ctx(), session)
	require.NoError(t, session.StartTransaction())
	_, err = tapped.InsertOne(ctx, bson.D{{Key: "_id", Value: "in"}})
	require.NoError(t, err)
	free, held := exclusiveClaim("free", 30*time.Second), exclusiveClaim("held", 30*time.Second)
	f.acquire(f.another(), held)
	_, err = f.store.Acquire(ctx, free)
	require.NoError(t, err)
	assert.False(t, f.absent("free"), "granted, and nobody else sees it")
	_, err = f.store.Acquire(ctx, exclusiveClaim("held", time.Second))
	assert.ErrorIs(t, err, store.ErrHeld)
	_, err = tapped.InsertOne(ctx, bson.D{{Key: "_id", Value: "after"}})
	assert.NoError(t, err, "the held key ended the caller's transaction")
	require.NoError(t, session.AbortTransaction(ctx))
	assert.False(t, f.absent("free"), "the aborted transaction freed the key")
	n, _ := data.CountDocuments(f.ctx(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "seed"}}}})
	assert.Zero(t, n, "documents of the aborted transaction")
}

func contextWithin(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
