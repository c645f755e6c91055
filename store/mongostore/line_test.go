package mongostore

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// aged says that a waiter was last seen that much earlier.
func (f *fixture) aged(c store.Claim, by time.Duration) {
	f.t.Helper()
	require.NoError(f.t, (&storeAndShell{Store: f.store, coll: f.coll}).Age(c.Key, c.Place, by))
}

// freed is a key that one waits for, and that nobody holds.
func (f *fixture) freed(key string) (waiting store.Claim) {
	f.t.Helper()
	c := exclusiveClaim(key, time.Minute)
	f.acquire(f.store, c)
	waiting = f.waits(f.store, exclusiveClaim(key, time.Minute))
	f.release(c.Ref)
	return waiting
}

// These are the safeties of the line, each in the race that it is for. A scenario returns what
// went wrong; the controls show what goes wrong without the safety.
var lineRaces = []struct {
	name   string
	safety string // the switch of internal/test/knob that takes it out
	run    func(f *fixture, line *testserver.Line) string
}{
	{
		"a takeover asks that nobody has begun to wait", "GrantOutOfTurn",
		func(f *fixture, line *testserver.Line) string {
			testserver.Need(f.t, "!router") // no date ends the dead one there
			other := f.another()
			dead := exclusiveClaim("k", time.Minute)
			f.acquire(other, dead)
			f.expire(dead.Ref, time.Hour)
			did := meanwhile(line, isTakeover, func() { // another claim, which dies before it takes the key over
				_, err := f.coll.UpdateByID(f.ctx(), "k", bson.D{
					{Key: "$push", Value: bson.D{{Key: "line", Value: "x:here:1"}}}, {Key: "$currentDate", Value: bson.D{{Key: "waits.x:here:1.seen", Value: true}}},
				})
				assert.NoError(f.t, err)
			})
			_, err := f.store.Acquire(f.ctx(), exclusiveClaim("k", time.Minute))
			if require.True(f.t, did()); err == nil {
				return "a claim passed a waiter that it had not seen"
			}
			return ""
		},
	},
	{
		"a claim of an offer compares who is the first in line", "GrantOutOfTurn",
		func(f *fixture, _ *testserver.Line) string {
			first := f.freed("k")
			second := f.waits(f.store, exclusiveClaim("k", time.Minute))
			second.Offered = true // a notice of long ago
			if _, err := f.store.Acquire(f.ctx(), anew(second)); err == nil {
				return "a key was taken before the first in line"
			}
			f.acquire(f.another(), anew(first))
			return ""
		},
	},
	{
		"a place at which its waiter was seen meanwhile is not passed", "StalePassedBlindly",
		func(f *fixture, line *testserver.Line) string {
			other, first := f.another(), f.freed("k")
			second := f.waits(f.store, exclusiveClaim("k", time.Minute))
			f.aged(first, 2*store.PlaceFor)
			did := meanwhile(line, isTakeover, func() {
				_, err := f.coll.UpdateByID(f.ctx(), "k", bson.D{{Key: "$currentDate", Value: bson.D{{Key: "waits." + string(first.Place) + ".seen", Value: true}}}})
				assert.NoError(f.t, err)
			})
			_, err := f.store.Acquire(f.ctx(), anew(second))
			if require.True(f.t, did()); err == nil {
				return "a waiter that is there was passed"
			}
			f.acquire(other, anew(first))
			return ""
		},
	},
	{
		"a reader in line compares who holds the key", "OfferUncompared",
		func(f *fixture, line *testserver.Line) string {
			c := exclusiveClaim("k", time.Minute)
			f.acquire(f.store, c)
			reader := f.waits(f.store, sharedClaim("k", time.Minute))
			f.release(c.Ref)
			writer := exclusiveClaim("k", time.Minute)
			did := meanwhile(line, isServed, func() { // an operator's hand, say: the reader's place stays
				_, err := f.coll.UpdateByID(f.ctx(), "k", bson.D{{Key: "$set", Value: bson.D{{Key: "mode", Value: "exclusive"}, {Key: "holders." + writer.ID, Value: bson.D{
					{Key: "owner", Value: "o"}, {Key: "since", Value: time.Now()}, {Key: "expireAt", Value: time.Now().Add(time.Minute)}, {Key: "ttl", Value: int64(60_000)}, {Key: "beat", Value: int64(1)},
				}}}}})
				assert.NoError(f.t, err)
			})
			_, err := f.store.Acquire(f.ctx(), anew(reader))
			if require.True(f.t, did()); err == nil {
				return "a reader and a writer hold the key"
			}
			return ""
		},
	},
	{
		"a claim of an offer compares that nobody holds the key", "OfferUncompared",
		func(f *fixture, _ *testserver.Line) string {
			c := exclusiveClaim("k", time.Minute)
			f.acquire(f.another(), c)
			waiting := f.waits(f.store, exclusiveClaim("k", time.Minute))
			waiting.Offered = true // a notice that came too early
			if _, err := f.store.Acquire(f.ctx(), anew(waiting)); err == nil {
				return "two hold the key"
			}
			return ""
		},
	},
	{
		"a release deletes no document with a line", "ReleaseDropsLine",
		func(f *fixture, line *testserver.Line) string {
			c := exclusiveClaim("k", time.Minute)
			f.acquire(f.store, c)
			var waiting store.Claim
			did := meanwhile(line, isRemove, func() { waiting = f.waits(f.another(), exclusiveClaim("k", time.Minute)) })
			ended, err := f.store.Release(f.ctx(), store.ReleaseRequest{Ref: c.Ref})
			require.NoError(f.t, err)
			if require.True(f.t, did()); !slices.Equal(ended.Line, []store.Place{waiting.Place}) || f.absent("k") {
				return "a waiter was forgotten"
			}
			f.acquire(f.another(), anew(waiting))
			return ""
		},
	},
	{
		"the last to leave the line deletes nothing that another has joined", "ReleaseDropsLine",
		func(f *fixture, line *testserver.Line) string {
			last := f.freed("k")
			if f.absent("k") {
				return "it was forgotten before"
			}
			var next store.Claim
			did := meanwhile(line, isRemove, func() {
				next = exclusiveClaim("k", time.Minute)
				next.Place = "x:here:2"
				_, err := f.coll.UpdateByID(f.ctx(), "k", bson.D{
					{Key: "$push", Value: bson.D{{Key: "line", Value: "x:here:2"}}}, {Key: "$currentDate", Value: bson.D{{Key: "waits.x:here:2.seen", Value: true}}},
				})
				assert.NoError(f.t, err)
			})
			_, err := f.store.Leave(f.ctx(), "k", last.Place)
			require.NoError(f.t, err)
			if require.True(f.t, did()); f.absent("k") {
				return "a waiter was forgotten"
			}
			f.acquire(f.another(), next)
			return ""
		},
	},
	{
		"a break deletes no document with a line", "ReleaseDropsLine",
		func(f *fixture, line *testserver.Line) string {
			c := exclusiveClaim("k", time.Minute)
			f.acquire(f.another(), c)
			waiting := f.waits(f.another(), exclusiveClaim("k", time.Minute))
			require.NoError(f.t, f.store.Break(f.ctx(), c.Ref, "why not", true))
			if f.absent("k") {
				return "a waiter was forgotten"
			}
			f.acquire(f.another(), anew(waiting))
			return ""
		},
	},
	{
		"a release that leaves a line moves the revision", "ReleaseKeepsRev",
		func(f *fixture, line *testserver.Line) string {
			c := exclusiveClaim("k", time.Minute)
			f.acquire(f.store, c)
			f.waits(f.another(), exclusiveClaim("k", time.Minute))
			line.Set(func(name string, c bson.Raw) testserver.Fate {
				return testserver.Fate{Stall: isModify(name) && isTakeover(c)}
			})
			_, err := f.store.Transfer(f.brief(), c.Ref, exclusiveClaim("k", time.Minute))
			require.Error(f.t, err)
			line.Set(nil)
			f.release(c.Ref)
			require.NotEmpty(f.t, line.Deliver(f.t), "nothing was stalled: the test shows nothing")
			if len(f.document("k").Holders) > 0 {
				return "a late hand-over has the key that was offered to the line"
			}
			return ""
		},
	},
}

// isServed tells a grant to one in line.
func isServed(c bson.Raw) bool { return !c.Lookup("update", "$pullAll").IsZero() }

func TestEachSafetyOfTheLineHoldsInItsRace(t *testing.T) {
	t.Parallel()
	for _, race := range lineRaces {
		t.Run(race.name, func(t *testing.T) {
			f, line := newFixtureOnLine(t)
			assert.Empty(t, race.run(f, line))
		})
	}
}

// Readers that are offered the key together come together: none of them loses a race, and has to
// look again.
func TestReadersThatAreOfferedTheKeyLoseNoRace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := exclusiveClaim("k", time.Minute)
	f.acquire(f.store, c)
	const readers = 8
	stores, claims, taps := make([]*Store, readers), make([]store.Claim, readers), make([]testserver.Tap, readers)
	for i := range claims {
		stores[i] = f.another(taps[i].On)
		claims[i] = anew(f.waits(stores[i], sharedClaim("k", time.Minute)))
		claims[i].Offered = true
	}
	f.release(c.Ref)
	var all sync.WaitGroup
	for i := range claims {
		all.Go(func() {
			taps[i].Take()
			_, err := stores[i].Acquire(f.ctx(), claims[i])
			assert.NoError(t, err)
			assert.Equal(t, []string{"findAndModify", "findAndModify"}, taps[i].TakeNames(), "it keeps its place, and joins")
		})
	}
	all.Wait()
	r := f.document("k")
	assert.Len(t, r.Holders, readers)
	assert.Empty(t, r.Line)
	for i := range claims {
		_, _ = stores[i].Release(f.ctx(), store.ReleaseRequest{Ref: claims[i].Ref})
	}
	assert.True(t, f.absent("k"))
}

// A command that is sent twice, or asked for again because its reply was lost, changes nothing.
func TestAPlaceIsTakenOnceHoweverOftenItIsAskedFor(t *testing.T) {
	t.Parallel()
	f, line := newFixtureOnLine(t)
	f.acquire(f.another(), exclusiveClaim("k", time.Minute))
	c := f.placed("k")
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Lose: isModify(name) && isWait(c)}
	})
	_, err := f.store.Acquire(f.brief(), c)
	require.Error(t, err, "no reply came")
	assert.True(t, store.IsCertain(err), "the claim itself was refused: %v", err)
	line.Set(nil)
	assert.Equal(t, c.Place, f.held(f.store, anew(c)).Place)
	assert.Len(t, f.document("k").Line, 1)
	for range 2 {
		_, err = f.store.Leave(f.ctx(), "k", c.Place)
		require.NoError(t, err)
	}
	assert.Empty(t, f.document("k").Line)
}

// The claim of an offer takes the place out of the line in the step of the grant. So a copy of it
// that comes late, when the claim was undone, misses: whatever the server knows of sessions.
func TestALateCopyOfTheClaimOfAnOfferMisses(t *testing.T) {
	t.Parallel()
	f, line := newFixtureOnLine(t)
	c := f.freed("k")
	isOffer := func(c bson.Raw) bool {
		return !c.Lookup("query", "line.0").IsZero() && !c.Lookup("update", "$set", fieldHolders).IsZero()
	}
	first := true
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if !isModify(name) || !isOffer(c) {
			return testserver.Fate{}
		}
		stall := first
		first = false
		return testserver.Fate{Stall: stall, Lose: !stall}
	})
	offered := anew(c)
	offered.Offered = true
	_, err := f.store.Acquire(f.brief(), offered)
	require.Error(t, err)
	require.False(t, store.IsCertain(err), "%v", err)
	line.Set(nil)
	settled, err := f.store.Undo(f.ctx(), offered.Ref, nil)
	require.NoError(t, err)
	assert.True(t, settled)
	line.Deliver(t)
	if !f.absent("k") {
		assert.Empty(t, f.document("k").Holders, "a ghost")
	}
}

// The TTL index goes by the document's end. While somebody waits that is not sooner than the place
// counts; and not for ever, once nobody comes.
func TestTheEndOfADocumentCoversItsLine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	covers := func(what string) {
		t.Helper()
		r := f.document("k")
		require.NotEmpty(t, r.Line, what)
		for _, w := range r.Line {
			assert.WithinDuration(t, w.Seen.Add(store.PlaceFor), f.end("k"), pace.Of(10*time.Second), what) // which is known a trip before it is seen
		}
	}
	c := exclusiveClaim("k", pace.Of(time.Second))
	f.acquire(f.store, c)
	waiting := f.waits(f.store, exclusiveClaim("k", time.Second))
	covers("held for a short time")
	f.release(c.Ref)
	covers("free")
	f.acquire(f.store, anew(waiting))
	waiting = f.waits(f.store, exclusiveClaim("k", time.Minute))
	covers("held by one who waited")
	f.takesOverInLine(waiting)
}

// takesOverInLine claims a key for one who waits, until it is granted, and releases it.
func (f *fixture) takesOverInLine(c store.Claim) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		c = anew(c)
		_, err := f.store.Acquire(f.ctx(), c)
		return err == nil
	}, pace.Of(20*time.Second), 20*time.Millisecond)
	f.release(c.Ref)
}

// Who comes behind a full line has no place, and is told who holds the key.
func TestAFullLineOfTheLivingIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.acquire(f.store, exclusiveClaim("k", time.Minute))
	for range store.LineMost {
		f.waits(f.store, exclusiveClaim("k", time.Minute))
	}
	before := f.document("k")
	held := f.held(f.store, f.placed("k"))
	assert.Empty(t, held.Place)
	assert.Len(t, held.Holders, 1)
	assert.Equal(t, store.LineMost, held.Ahead())
	assert.Equal(t, before, f.document("k"))
}

// told keeps the notices that a store sends by itself.
type told struct {
	store.Feed
	all []store.Notice
}

func (t *told) Notify(_ context.Context, all ...store.Notice) error {
	t.all = append(t.all, all...)
	return nil
}

// While a refused claim's twin had the key another came to wait for it. The claim that removes the
// twin tells it: nobody else knows that the key is free.
func TestAWaiterIsToldWhenATwinThatHadTheKeyIsRemoved(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f, line := newFixtureOnLine(t)
	other, holder := f.another(), exclusiveClaim("k", 30*time.Second)
	f.acquire(other, holder)
	first, sent := true, &told{}
	var waiting store.Claim
	line.Set(func(name string, c bson.Raw) (fate testserver.Fate) {
		switch {
		case isModify(name) && isUpsert(c) && first:
			first, fate.Stall = false, true
		case name == "find": // it was refused, and does not know yet by whom
			fate.Before = func() {
				f.release(holder.Ref)
				line.Deliver(t)
				waiting = f.waits(other, exclusiveClaim("k", time.Minute))
			}
		}
		return fate
	})
	f.store.feed = sent
	f.held(f.store, exclusiveClaim("k", 30*time.Second))
	require.NotEmpty(t, waiting.Place, "no twin landed: the test shows nothing")
	assert.Equal(t, []store.Notice{{Topic: store.TopicLocks, Key: "k", Kind: store.KindOffered, To: "here", Place: waiting.Place}}, sent.all)
	f.acquire(other, anew(waiting))
}

// An operator's hand has left a place in the line twice. Servers refuse an update that unsets one
// field twice.
func TestAPlaceThatStandsTwiceIsTakenOutOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	waiting := f.freed("k")
	_, err := f.coll.UpdateByID(f.ctx(), "k", bson.D{{Key: "$set", Value: bson.D{{Key: "line", Value: bson.A{"x:dead:1", "x:dead:1", string(waiting.Place)}}}}})
	require.NoError(t, err)
	f.tap.Take()
	f.acquire(f.store, anew(waiting))
	for _, c := range f.tap.Take() {
		out, _ := c.Lookup("update", "$unset").DocumentOK()
		elements, err := out.Elements()
		require.NoError(t, err)
		for i, e := range elements {
			assert.False(t, slices.ContainsFunc(elements[:i], func(b bson.RawElement) bool { return b.Key() == e.Key() }), "%v", out)
		}
	}
	assert.Empty(t, f.document("k").Line)
}
