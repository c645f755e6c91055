package mongostore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// The parts of the commands of docs/internals/design.md §4.
const (
	sentDurably = "writeConcern: {w: majority, j: true}"
	sentVoted   = "writeConcern: {w: majority}"
	sentSoftly  = "writeConcern: {w: 1}"

	sentHello = "hello: 1"
	sentFind  = "find filter: {_id: k} limit: 1 singleBatch: true readConcern: {level: local}"
)

// sentNew is the holder that a claim writes.
const sentNew = "{owner: owner, note: note, since: DATE, expireAt: DATE, ttl: MS, beat: BEAT, epoch: EPOCH}"

// sentHolder sets the whole map of holders to one holder.
func sentHolder(id string) string { return sentAlone("exclusive", id, ", rev: REV") }

func sentAlone(mode, id, rev string) string {
	return "update: {$set: {mode: " + mode + ", holders: {" + id + ": " + sentNew + "}, expireAt: DATE" + rev + "}, $currentDate: {at: true}}"
}

func sentUpsert(id string) string { return sentInsert("exclusive", id) }

func sentInsert(mode, id string) string {
	return "findAndModify new: true query: {_id: k, mongolock: 1, rev: REV} " + sentAlone(mode, id, "") + " upsert: true " + sentDurably
}

// sentWait joins the line, sentRefresh says that one still waits there.
func sentWait(place string) string {
	return fmt.Sprintf("findAndModify new: true query: {_id: k, mongolock: 1, line: {$ne: %[1]s}, line.63: {$exists: false}, expireAt: {$gte: DATE}} "+
		"update: {$push: {line: %[1]s}, $set: {waits.%[1]s.owner: owner}, $currentDate: {waits.%[1]s.since: true, waits.%[1]s.seen: true, at: true}, $max: {expireAt: DATE}} ", place) + sentSoftly
}

func sentRefresh(place string) string {
	return fmt.Sprintf("findAndModify new: true query: {_id: k, mongolock: 1, waits.%[1]s: {$exists: true}, expireAt: {$gte: DATE}} "+
		"update: {$currentDate: {waits.%[1]s.seen: true, at: true}, $max: {expireAt: DATE}} ", place) + sentSoftly
}

// sentOffer takes a key that is offered.
func sentOffer(id, place string) string {
	return "findAndModify fields: {waits: 0} new: true query: {_id: k, mongolock: 1, holders: {}, line.0: " + place + "} " +
		sentServed(id, "", place) + " " + sentDurably
}

// sentServed makes a claim the only holder, and takes places out of the line.
func sentServed(id, unset string, places ...string) string {
	gone := make([]string, len(places))
	for i, p := range places {
		gone[i] = "waits." + p + ": "
	}
	if unset != "" {
		gone = append(gone, unset)
	}
	return strings.TrimSuffix(sentHolder(id), "}") + ", $pullAll: {line: [" + strings.Join(places, ", ") + "]}, $unset: {" + strings.Join(gone, ", ") + "}}"
}

func sentDropping(id string) string {
	return "update: {$unset: {holders." + id + ": }, $inc: {rev: 1}, $set: {expireAt: DATE}, $currentDate: {at: true}}"
}

// sentLeaveOfOne releases a key that others wait for.
func sentLeaveOfOne(id, concern string) string {
	return "findAndModify new: true query: {_id: k, mongolock: 1, mode: exclusive, holders." + id + ": {$exists: true}} " + sentDropping(id) + " " + concern
}

func sentLast(concern string) string {
	return "findAndModify query: {_id: k, mongolock: 1, holders: {}, line.0: {$exists: false}} remove: true " + concern
}

func sentUnbroken(id string) string {
	return fmt.Sprintf("holders.%[1]s.broken: {$exists: false}, holders.%[1]s.released: {$exists: false}", id)
}

func sentAlive(id string) string {
	return sentUnbroken(id) + fmt.Sprintf(", $and: [{$or: [{holders.%[1]s.expireAt: {$gt: DATE}}, {holders.%[1]s.epoch: {$ne: EPOCH}}]}]", id)
}

func sentRenewal(id string) string {
	return fmt.Sprintf("{$max: {holders.%[1]s.expireAt: DATE, expireAt: DATE, holders.%[1]s.ttl: MS}, "+
		"$set: {holders.%[1]s.beat: BEAT, holders.%[1]s.epoch: EPOCH}, $currentDate: {at: true}}", id)
}

func sentRelease(id, concern string) string {
	return "findAndModify query: {_id: k, mongolock: 1, mode: exclusive, holders." + id + ": {$exists: true}, line.0: {$exists: false}} remove: true " + concern
}

// firstClaim is what a client sends before its first claim: it asks whether the collection is
// capped.
func firstClaim(then ...string) []string {
	return append([]string{"listCollections"}, firstContact(then...)...)
}

// firstContact is what a client sends before its first command: through a router it also
// asks whether the collection is sharded.
func firstContact(then ...string) []string {
	first := []string{sentHello}
	if testserver.Has("router") {
		first = append(first, "collStats")
	}
	return append(first, then...)
}

func (f *fixture) expect(what string, names []string, want ...string) {
	f.t.Helper()
	assert.Equal(f.t, strings.Join(want, "\n"), rendered(f.tap.Take(), names...), "%s sent", what)
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

func TestEachStepSendsWhatTheProtocolSays(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	f := newFixture(t)
	mine, other := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
	names := []string{mine.ID, other.ID}

	f.acquire(f.store, mine)
	f.expect("the first acquire of all", names, firstClaim(sentUpsert("ID"))...)

	_, err := f.store.Acquire(f.ctx(), other)
	require.ErrorIs(t, err, store.ErrHeld)
	f.expect("a try on a held key", names, sentUpsert("ID2"), sentFind)

	other.Held = true
	_, err = f.store.Acquire(f.ctx(), other)
	require.ErrorIs(t, err, store.ErrHeld)
	f.expect("a try on a key that is known to be held", names, sentFind)
	other.Held = false

	require.NoError(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: mine.Ref, TTL: mine.TTL}})[0].Err)
	f.expect("one renewal", names,
		"findAndModify new: true query: {_id: k, mongolock: 1, "+sentUnbroken("ID")+", holders.ID.beat: {$lt: BEAT}} update: "+sentRenewal("ID")+" "+sentDurably)

	_, err = f.store.Transfer(f.ctx(), mine.Ref, other)
	require.NoError(t, err)
	f.expect("a hand-over", names,
		"findAndModify new: true query: {_id: k, mongolock: 1, rev: REV} "+sentHolder("ID2")+" "+sentDurably)

	require.NoError(t, f.store.Break(f.ctx(), other.Ref, "because", false))
	f.expect("a break", names,
		"findAndModify new: true query: {_id: k, mongolock: 1, holders.ID2: {$exists: true}} update: {$set: {holders.ID2.broken: because}, $inc: {rev: 1}, $currentDate: {at: true}} "+sentDurably)
	require.NoError(t, f.store.Break(f.ctx(), other.Ref, "because", true))
	f.expect("the removal after a break", names,
		"findAndModify query: {_id: k, mongolock: 1, holders.ID2: {$exists: true}, mode: exclusive, line.0: {$exists: false}} remove: true "+sentDurably)

	third := exclusiveClaim("k", 30*time.Second)
	names = []string{third.ID}
	f.acquire(f.store, third)
	f.expect("an acquire once the clock is known", names, sentUpsert("ID"))
	err = released(f.ctx(), f.store, third.Ref, 0)
	require.NoError(t, err)
	f.expect("a release", names, sentRelease("ID", sentSoftly))
	err = released(f.ctx(), f.store, third.Ref, 0)
	require.ErrorIs(t, err, store.ErrGone)
	f.expect("a release that finds nothing", names, sentRelease("ID", sentVoted), sentLeaveOfOne("ID", sentVoted), sentFind)

	kept := exclusiveClaim("k", 30*time.Second)
	names = []string{kept.ID}
	f.acquire(f.store, kept)
	f.tap.Take()
	err = released(f.ctx(), f.store, kept.Ref, 10*time.Second)
	require.NoError(t, err)
	f.expect("MinHold's release", names,
		"findAndModify new: true query: {_id: k, mongolock: 1, mode: exclusive, holders.ID: {$exists: true}} update: {$set: {holders.ID.released: true, holders.ID.expireAt: DATE, holders.ID.ttl: MS, holders.ID.beat: BEAT, holders.ID.epoch: EPOCH, expireAt: DATE}, $inc: {rev: 1}, $currentDate: {at: true}} "+sentSoftly)

	settled, err := f.store.Undo(f.ctx(), kept.Ref, nil)
	require.True(t, settled)
	require.NoError(t, err)
	sentUndo := func(which string) string {
		return "findAndModify new: true query: {_id: k, mongolock: 1, " + which + "} "
	}
	f.expect("an undo", names, sentUndo("holders.ID: {$exists: true}, mode: exclusive")+sentDropping("ID")+" "+sentDurably, sentLast(sentDurably))
	settled, err = f.store.Undo(f.ctx(), kept.Ref, &third.Ref)
	require.True(t, settled)
	require.NoError(t, err)
	f.expect("the undo of a hand-over", []string{kept.ID, third.ID},
		sentUndo("$and: [{$or: [{holders.ID: {$exists: true}}, {holders.ID2: {$exists: true}}]}], mode: exclusive")+
			"update: {$unset: {holders.ID: , holders.ID2: }, $inc: {rev: 1}, $set: {expireAt: DATE}, $currentDate: {at: true}} "+sentDurably)

	_, err = f.store.Look(f.ctx(), []string{"k"})
	require.NoError(t, err)
	f.expect("a look", nil, sentFind)
	_, err = f.store.Look(f.ctx(), []string{"k", "j", "k"})
	require.NoError(t, err)
	f.expect("a look at several keys that are free", nil, "find batchSize: 3 filter: {_id: {$in: [j, k]}} readConcern: {level: local}")
	for range f.store.List(f.ctx(), "a.") {
	}
	f.expect("a list", nil,
		"find batchSize: 500 filter: {_id: {$gte: a., $lt: a/}, mongolock: 1} sort: {_id: 1} readConcern: {level: local}")
}

// A free pair takes two commands, and so does the claim of one who begins to wait. From then on
// each step of a waiter, and each release that hands the key to one, takes one.
func TestEachStepOfALineSendsWhatTheProtocolSays(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime")
	f := newFixture(t)
	one, two := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
	two.Place = store.NewPlace(store.Exclusive, 1, 1, "here")
	names := []string{one.ID, two.ID, string(two.Place)}
	f.acquire(f.store, one)
	f.tap.Take()

	held := f.held(f.store, two)
	assert.Equal(t, two.Place, held.Place)
	f.expect("a waiter on a held key", names, sentUpsert("ID2"), sentWait("ID3"))
	two.InLine = true
	f.held(f.store, two)
	f.expect("one who stands in line", names, sentRefresh("ID3"))

	three := f.placed("k")
	three.Held = true
	f.held(f.store, three)
	f.expect("a waiter on a key that is known to be held", []string{string(three.Place)}, sentWait("ID"))

	ended, err := f.store.Release(f.ctx(), store.Ending{Ref: one.Ref, Line: true})
	require.NoError(t, err)
	assert.Equal(t, store.Ended{Line: []store.Place{two.Place, three.Place}}, ended)
	f.expect("a release with a line", names, sentLeaveOfOne("ID", sentSoftly))
	two.Offered = true
	g := f.acquire(f.store, two)
	assert.Equal(t, []store.Place{three.Place}, g.Line)
	f.expect("the claim of an offer", names, sentOffer("ID2", "ID3"))

	four := f.waits(f.store, f.placed("k"))
	f.tap.Take()
	status, err := f.store.Leave(f.ctx(), "k", four.Place, false)
	require.NoError(t, err)
	assert.Len(t, status.Line, 1)
	f.expect("one who gives up", []string{string(four.Place)},
		"findAndModify new: true query: {_id: k, mongolock: 1, line: ID} update: {$pull: {line: ID}, $unset: {waits.ID: }, $currentDate: {at: true}} "+sentSoftly)

	five := f.waits(f.store, f.placed("k"))
	f.release(two.Ref)
	f.tap.Take()
	five.InLine, five.Pass = true, three.Place
	f.acquire(f.store, five)
	f.expect("one that passes another", []string{five.ID, string(three.Place), string(five.Place)}, sentRefresh("ID3"),
		"findAndModify new: true query: {_id: k, mongolock: 1, rev: REV, line.0: ID2, line.1: ID3} "+sentServed("ID", "", "ID2", "ID3")+" "+sentDurably)
	f.release(five.Ref)
	f.tap.Take()

	six := f.placed("k")
	f.acquire(f.store, six)
	f.expect("a waiter on a free key", []string{six.ID}, sentUpsert("ID"))
	seven := f.waits(f.store, f.placed("k"))
	f.tap.Take()
	f.release(six.Ref)
	f.expect("a release that does not know of a line", []string{six.ID}, sentRelease("ID", sentSoftly), sentLeaveOfOne("ID", sentSoftly))
	_, err = f.store.Leave(f.ctx(), "k", seven.Place, true)
	require.NoError(t, err)
	f.expect("the last in line is silent", []string{string(seven.Place)},
		"findAndModify new: true query: {_id: k, mongolock: 1, line.0: ID} update: {$pull: {line: ID}, $unset: {waits.ID: }, $currentDate: {at: true}} "+sentSoftly,
		sentLast(sentSoftly))
	assert.True(t, f.absent("k"))
}

// placed returns the claim of a waiter.
func (f *fixture) placed(key string) store.Claim {
	c := exclusiveClaim(key, 30*time.Second)
	c.Place = store.NewPlace(c.Mode, c.Limit, 1, "here")
	return c
}

func TestAHandOverFromALeaseOfAnotherProcessNamesItsID(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	f := newFixture(t)
	theirs, mine := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
	f.acquire(f.another(), theirs)
	f.tap.Take()
	_, err := f.store.Transfer(f.ctx(), theirs.Ref, mine)
	require.NoError(t, err)
	f.expect("a hand-over from another process", []string{theirs.ID, mine.ID}, firstContact(
		"findAndModify new: true query: {_id: k, mongolock: 1, mode: exclusive, holders.ID: {$exists: true}, "+sentAlive("ID")+"} "+sentHolder("ID2")+" "+sentDurably)...)
}

func TestATakeoverNamesTheRevisionAndTheHoldersItDrops(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	f := newFixture(t)
	dead, mine := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
	f.acquire(f.store, dead)
	f.expire(dead.Ref, time.Second)
	f.tap.Take()
	f.acquire(f.store, mine)
	f.expect("a takeover", []string{mine.ID, dead.ID}, sentUpsert("ID"), sentFind, sentHello,
		"findAndModify new: true query: {_id: k, mongolock: 1, rev: REV, holders.ID2.beat: BEAT, line.0: {$exists: false}} "+sentHolder("ID")+" "+sentDurably)
	r := f.document("k")
	require.Len(t, r.Holders, 1, "the document")
	assert.Equal(t, mine.ID, r.Holders[0].ID, "the document has %+v", r.Holders)
}

func TestAWaiterWhoseLookFindsOnlyExpiredHoldersTakesOver(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime")
	f := newFixture(t)
	dead, mine, next := exclusiveClaim("k", 30*time.Second), f.placed("k"), f.placed("k")
	f.acquire(f.store, dead)
	f.expire(dead.Ref, time.Hour)
	f.tap.Take()
	mine.Held, next.Held = true, true
	f.acquire(f.store, mine)
	names := []string{mine.ID, dead.ID, string(mine.Place)}
	f.expect("the takeover", names, sentWait("ID3"),
		"findAndModify new: true query: {_id: k, mongolock: 1, rev: REV, holders.ID2.beat: BEAT, line.0: ID3} "+sentServed("ID", "", "ID3")+" "+sentDurably)
	f.release(mine.Ref)
	f.tap.Take()
	f.acquire(f.store, next)
	f.expect("one that finds nothing", []string{next.ID, string(next.Place)}, sentWait("ID2"), sentUpsert("ID"))
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
	// The store remembers the first, and knows that it has not run out.
	for i, held := range []string{sentUnbroken("ID"), sentAlive("ID")} {
		one := bson.Raw(sent[0].Lookup("updates").Array()).Index(uint(i)).Value()
		want := fmt.Sprintf("{q: {_id: k%d, mongolock: 1, %s, holders.ID.beat: {$lt: BEAT}}, u: %s}", i, held, sentRenewal("ID"))
		assert.Equal(t, want, renderedValue(one, []string{batch[i].ID}), "sent")
	}

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
			assert.Equal(t, "{w: majority, j: true}", renderedValue(cmd.Lookup("writeConcern"), nil), "write concern")
		case "find":
			assert.Equal(t, "{level: local}", renderedValue(cmd.Lookup("readConcern"), nil), "read concern")
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
	for ttl, want := range map[time.Duration]string{30 * time.Second: sentSoftly, time.Hour: sentVoted} {
		c := exclusiveClaim("k", ttl)
		f.acquire(f.store, c)
		f.tap.Take()
		err := released(f.ctx(), f.store, c.Ref, 0)
		require.NoError(t, err)
		f.expect("the release of "+ttl.String(), []string{c.ID}, sentRelease("ID", want))
	}
}

func TestNoCommandRunsInTheCallersSession(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f := newFixture(t)
	user, err := f.store.base.Soft.Database().Client().StartSession()
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
	_, err = f.store.Leave(inUsers, "k", late.Place, false)
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
