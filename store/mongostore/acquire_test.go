package mongostore

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

func TestAnExpiredKeyIsGrantedOverItsOldDocument(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	dead, other := exclusiveClaim("k", pace.Of(2*time.Second)), f.another()
	g := f.acquire(f.store, dead)
	_, err := other.Acquire(f.ctx(), exclusiveClaim("k", time.Second))
	require.ErrorIs(t, err, store.ErrHeld, "before its end")
	time.Sleep(g.Left + 30*time.Millisecond) // real: the lease is over, and so is what a clock may be wrong by
	require.False(t, f.absent("k"), "the document is gone: the test shows nothing")
	next := f.takesOver(other, "k")
	assert.Greater(t, next.Token, g.Token, "the token rises")
}

// takesOver takes a key whose holder is over, once that is known for sure: a command that
// took a second, on a busy machine, needs a second look.
func (f *fixture) takesOver(s *Store, key string) (g store.Grant) {
	f.t.Helper()
	require.Eventually(f.t, func() (granted bool) {
		var err error
		g, err = s.Acquire(f.ctx(), exclusiveClaim(key, time.Minute))
		return err == nil
	}, pace.Of(20*time.Second), 20*time.Millisecond, "%q is not free", key)
	return g
}

func TestOneOfManyTriesOnAKeyWins(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "atomic")
	f := newFixture(t)
	stores := []*Store{f.another(), f.another(), f.another()}
	for name, prepare := range map[string]func(key string){
		"new": func(string) {},
		"expired": func(key string) {
			dead := exclusiveClaim(key, time.Minute)
			f.acquire(stores[0], dead)
			f.expire(dead.Ref, time.Hour)
		},
		"expired below the top": func(key string) {
			dead := exclusiveClaim(key, time.Minute)
			f.acquire(stores[0], dead)
			f.expire(dead.Ref, time.Hour)
			_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: key}}, bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: time.Now().Add(time.Hour)}}}})
			assert.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "new" {
				testserver.Need(t, "!router") // behind one a holder is over when it was seen still for its TTL
			}
			for round := range 10 {
				key := fmt.Sprint(name, round)
				prepare(key)
				var won atomic.Int32
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() {
						_, err := stores[i%len(stores)].Acquire(f.ctx(), exclusiveClaim(key, time.Minute))
						switch {
						case err == nil:
							won.Add(1)
						case !errors.Is(err, store.ErrHeld):
							t.Errorf("a loser was told %v", err)
						}
					})
				}
				all.Wait()
				require.EqualValues(t, 1, won.Load(), "winners")
			}
		})
	}
}

// renewedMeanwhile takes a key over whose holder is renewed between the look and the swap, to
// last until then.
func renewedMeanwhile(t *testing.T, until time.Time) (dead lease.Holder, lost bool) {
	t.Helper()
	testserver.Need(t, "!router") // no clock says at once that the holder is over
	line := &testserver.Line{}
	f := newFixture(t, line.Through)
	victim := exclusiveClaim("k", time.Minute)
	f.acquire(f.another(), victim)
	f.expire(victim.Ref, time.Hour)
	renewed := lease.Extend("", path(victim.ID), lease.Validity{
		Until: until, TTL: 24 * time.Hour, Beat: f.store.base.Beat(), By: f.store.base.ClockBasis(),
	})
	swaps := 0
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if isModify(name) && isTakeover(c) {
			swaps++
			return testserver.Fate{Before: func() {
				_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}, renewed)
				assert.NoError(t, err)
			}}
		}
		return testserver.Fate{}
	})
	_, err := f.store.Acquire(f.ctx(), exclusiveClaim("k", time.Minute))
	require.NotZero(t, swaps, "no swap: the test shows nothing")
	if err != nil && !errors.Is(err, store.ErrHeld) {
		t.Fatal(err)
	}
	h, _ := f.document("k").Has(victim.ID)
	return h, err == nil
}

func TestATakeoverDoesNotDropAHolderRenewedMeanwhile(t *testing.T) {
	t.Parallel()
	h, lost := renewedMeanwhile(t, time.Now().Add(24*time.Hour))
	assert.False(t, lost, "dropped a living holder")
	assert.NotEmpty(t, h.ID, "dropped a living holder")
}

// A primary whose clock is behind that of the one before renews a holder without moving its
// end, as the end never goes back.
func TestATakeoverDoesNotDropAHolderRenewedByASlowerClock(t *testing.T) {
	t.Parallel()
	_, lost := renewedMeanwhile(t, time.Now().Add(-2*time.Hour))
	assert.False(t, lost, "dropped a living holder")
}

// replacedMeanwhile takes a document over that another grant replaces between the look and the
// swap.
func replacedMeanwhile(t *testing.T) (lost bool) {
	t.Helper()
	line := &testserver.Line{}
	f := newFixture(t, line.Through)
	victim, next := exclusiveClaim("k", time.Minute), exclusiveClaim("k", time.Minute)
	other := f.another()
	f.acquire(other, victim)
	f.expire(victim.Ref, time.Hour)
	_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: time.Now().Add(time.Hour)}}}})
	require.NoError(t, err)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if isModify(name) && isTakeover(c) {
			return testserver.Fate{Before: func() { f.acquire(other, next) }}
		}
		return testserver.Fate{}
	})
	_, err = f.store.Acquire(f.ctx(), exclusiveClaim("k", time.Minute))
	_, there := f.document("k").Has(next.ID)
	return err == nil && !there
}

func TestATakeoverAppliesOnlyToTheRevisionItSaw(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "atomic")
	assert.False(t, replacedMeanwhile(t), "took the key from somebody granted meanwhile")
}

// handedOverLate hands over a key that another claim was granted meanwhile, in a document of
// its own.
func handedOverLate(t *testing.T) (lost bool) {
	t.Helper()
	f := newFixture(t)
	from, next := exclusiveClaim("k", time.Minute), exclusiveClaim("k", time.Minute)
	f.acquire(f.store, from)
	_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}})
	require.NoError(t, err)
	f.acquire(f.another(), next)
	_, err = f.store.Transfer(f.ctx(), from.Ref, exclusiveClaim("k", time.Minute))
	_, there := f.document("k").Has(next.ID)
	return err == nil && !there
}

func TestTokensRiseWhateverEndsAHold(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	f := newFixture(t)
	stores := []*Store{f.another(), f.another()}
	ends := []func(s *Store, r store.Ref){
		func(s *Store, r store.Ref) { _ = released(f.ctx(), s, r, 0) },
		func(_ *Store, r store.Ref) { f.expire(r, time.Minute) },
		func(_ *Store, r store.Ref) { _, _ = f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: r.Key}}) },
		func(s *Store, r store.Ref) { _ = s.Break(f.ctx(), r, "x", true) },
		func(s *Store, r store.Ref) { _, _ = s.Undo(f.ctx(), r, nil) },
	}
	last, cycles := int64(math.MinInt64), 1000
	if testing.Short() {
		cycles = 100
	}
	for i := range cycles {
		if i%200 == 199 {
			stores[1] = f.another() // a process that restarts
		}
		s := stores[i%len(stores)]
		c := exclusiveClaim("k", time.Minute)
		g := f.acquire(s, c)
		require.Greater(t, g.Token, last, "cycle %d: the token rises", i)
		last = g.Token
		if i%7 == 0 {
			to := exclusiveClaim("k", time.Minute)
			g, err := s.Transfer(f.ctx(), c.Ref, to)
			require.NoError(t, err, "cycle %d: handed over with token %d after %d", i, g.Token, last)
			require.Greater(t, g.Token, last, "cycle %d: handed over", i)
			c, last = to, g.Token
		}
		ends[i%len(ends)](s, c.Ref)
	}
}

// trustedTooLong returns by how much a client that was suspended trusts its grant for longer
// than the server honours it. The client believes that its sample is fresh.
func trustedTooLong(t *testing.T, ttl time.Duration) (late time.Duration, left time.Duration) {
	t.Helper()
	f := newFixture(t)
	awake, slept := server.Monotonic(), atomic.Int64{}
	s := open(f.coll, config{noIndex: true, now: func() server.Moment {
		return awake().Add(-time.Duration(slept.Load()))
	}})
	_, err := s.Look(f.ctx(), []string{"k"})
	require.NoError(t, err)
	asleep := ttl * 6 / 5
	time.Sleep(asleep)       // real: the server's time goes on while the machine sleeps
	slept.Add(int64(asleep)) // by its clock nothing has passed

	c := exclusiveClaim("k", ttl)
	sent := time.Now()
	g := f.acquire(s, c)
	honoured := f.end("k") // this machine's clock is the server's
	return sent.Add(g.Left).Sub(honoured), g.Left
}

func TestASuspendedClientIsTrustedForNoLongerThanTheServerHonours(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "!router") // behind one the date does not end a lease
	ttl := pace.Of(time.Second)
	late, left := trustedTooLong(t, ttl)
	assert.LessOrEqual(t, late, time.Duration(0), "trusted after what the server honours")
	assert.GreaterOrEqual(t, left, ttl*4/5, "not written again: too little of %v is left", ttl)
}

func TestKeysAndTextsComeBackByteForByte(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	for _, text := range []string{"$x", "a.b", " ", "a\x00b", "🔒", "a/b", "$$NOW", "{}", "A", "a", strings.Repeat("é", 512)} {
		c := exclusiveClaim(text, time.Minute)
		c.Owner, c.Note = text, text
		f.acquire(f.store, c)
		seen, err := f.store.Look(f.ctx(), []string{text})
		require.NoError(t, err, "%q: %v", text, seen)
		require.Len(t, seen[0].Holders, 1, "%q: %v", text, seen)
		h := seen[0].Holders[0]
		assert.Equal(t, text, seen[0].Key, "%q came back as %+v", text, seen[0])
		assert.Equal(t, text, h.Owner, "%q came back as %+v", text, seen[0])
		assert.Equal(t, text, h.Note, "%q came back as %+v", text, seen[0])
		assert.NoError(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: time.Minute}})[0].Err, "%q", text)
	}
	var listed []string
	for s, err := range f.store.List(f.ctx(), "") {
		require.NoError(t, err)
		listed = append(listed, s.Key)
	}
	assert.Len(t, listed, 11, "listed")
	assert.True(t, slices.IsSorted(listed), "listed %q", listed)
}

func TestARangeHoldsTheKeysThatBeginWithThePrefix(t *testing.T) {
	t.Parallel()
	for prefix, end := range map[string]string{"": "", "a": "b", "a.": "a/", "é": "ê", "\U0010FFFF": "", "a\U0010FFFF": "b", "\uD7FF": "\uE000", "a\x00": "a\x01"} {
		d := prefixRange(prefix)
		got := ""
		if len(d) > 1 {
			got = d[1].Value.(string)
		}
		assert.Equal(t, end, got, "%q: %v", prefix, d)
		assert.Equal(t, prefix, d[0].Value, "%q: %v", prefix, d)
	}
}

func TestAClaimInAnUnknownModeIsNotApplied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, mode := range []store.Mode{"", "read"} {
		c := exclusiveClaim("k", time.Second)
		c.Mode = mode
		_, err := f.store.Acquire(f.ctx(), c)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorIs(t, err, store.ErrNotApplied)
	}
	sent := f.tap.Take()
	assert.Empty(t, sent, "sent %s", rendered(sent))
}

// indexes are the indexes that the server has, but for that of _id.
func (f *fixture) indexes() []bson.Raw {
	f.t.Helper()
	cursor, err := f.coll.Indexes().List(f.ctx())
	require.NoError(f.t, err)
	var all []bson.Raw
	for cursor.Next(f.ctx()) {
		if name, _ := cursor.Current.Lookup("name").StringValueOK(); name != "_id_" {
			all = append(all, slices.Clone(cursor.Current))
		}
	}
	return all
}

// A holder releases and takes the key again in a loop: the place finds no document, and the look
// after it finds the next one. If a waiter were told only that the key is held, it would sleep
// until that holder's end, and no process would know that it waits.
func TestAWaiterIsNeverRefusedWithoutItsPlaceInTheLine(t *testing.T) {
	t.Parallel()
	line := &testserver.Line{}
	f := newFixture(t, line.Through)
	other := f.another()
	first, next, mine := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second), f.placed("k")
	f.acquire(other, first)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if name != "findAndModify" || !isWait(c) {
			return testserver.Fate{}
		}
		line.Set(nil)
		return testserver.Fate{
			Before: func() { assert.NoError(t, released(f.ctx(), other, first.Ref, 0)) },
			Rewrite: func(reply bson.Raw) bson.D {
				f.acquire(other, next)
				return testserver.Edit(reply, nil)
			},
		}
	})
	held := f.held(f.store, mine)
	if len(f.document("k").Line) == 0 && !held.Free() {
		t.Error("refused, to sleep, and it is not in line")
	}
	assert.Equal(t, mine.Place, f.held(f.store, mine).Place, "asked once more")
}

// isWait tells the command that joins a line.
func isWait(c bson.Raw) bool { return !c.Lookup("update", "$push").IsZero() }
