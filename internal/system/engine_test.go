package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/testserver"
)

// writes counts the commands that change something.
func writes(commands []bson.Raw) (n int) {
	for _, c := range commands {
		if first, err := c.IndexErr(0); err == nil && slices.Contains([]string{"findAndModify", "update", "insert", "delete", "createIndexes"}, first.Key()) {
			n++
		}
	}
	return n
}

func TestAFreeKeyIsGrantedInOneCommandOnceTheClockIsKnown(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	c, tap := f.tapped(mongolock.WithOwner("me"))
	f.release(f.acquire(c, "warm"))
	tap.Take()
	l := f.acquire(c, "k", mongolock.Note("why"))
	sent := tap.Take()
	if len(sent) != 1 && testserver.Has("operationtime") {
		t.Errorf("%d commands", len(sent))
	}
	d := readLock(f.document("k"))
	h, ok := d.Holders[l.ID()]
	assert.Len(t, d.Holders, 1, "holders")
	assert.True(t, ok, "holders %+v", d.Holders)
	assert.Equal(t, "me", h.Owner, "holders %+v", d.Holders)
	assert.Equal(t, "why", h.Note, "holders %+v", d.Holders)
	ahead := d.ExpireAt.Sub(d.At)
	assert.GreaterOrEqual(t, ahead, 29*time.Second, "the end, after it was written")
	assert.LessOrEqual(t, ahead, 32*time.Second, "the end, after it was written")
	assert.False(t, h.ExpireAt.After(d.ExpireAt), "ends %v after it was written", ahead)
	f.release(l)
}

func TestASecondTryIsRefusedAtOnceAndToldByWhom(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	c := f.client(mongolock.WithOwner("first"))
	l := f.acquire(c, "k", mongolock.Note("a note"))
	for name, rival := range map[string]*mongolock.Client{"the same client": c, "another": f.client()} {
		for _, elsewhere := range []bool{false, true} {
			answer := make(chan error, 1)
			try := func() { _, err := rival.TryAcquire(f.ctx(), "k"); answer <- err }
			begin := time.Now()
			if elsewhere {
				go try()
			} else {
				try()
			}
			var held *mongolock.HeldError
			err := <-answer
			require.ErrorAs(t, err, &held, "%s", name)
			require.ErrorIs(t, err, mongolock.ErrHeld, "%s", name)
			f.within(slack, time.Since(begin), fmt.Sprintf("%s: refused", name))
			if h := held.Holders; held.Key != "k" || len(h) != 1 || h[0].Owner != "first" || h[0].Note != "a note" || held.Left() < 25*time.Second || held.Left() > 31*time.Second {
				t.Errorf("%s: told %+v, %v left", name, held.Status, held.Left())
			}
		}
	}
	f.mustHold(l)
	f.release(l)
}

func TestKeysDoNotAffectEachOther(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	c := f.client()
	var all []*mongolock.Lease
	for _, key := range []string{"a", "A", "a ", " a", "ab", "a.b", "á", "a\u0301"} {
		l, err := c.TryAcquire(f.ctx(), key)
		require.NoError(t, err, "%q", key)
		all = append(all, l)
	}
	f.release(all[0])
	for _, l := range all[1:] {
		f.mustHold(l)
		f.release(l)
	}
}

func TestReleaseFreesAtOnceTenTimesInARowAndDeletesTheDocument(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	clients := []*mongolock.Client{f.client(), f.client()}
	for i := range 10 {
		l, err := clients[i%2].TryAcquire(f.ctx(), "k")
		require.NoError(t, err, "round %d", i)
		f.release(l)
		assert.Nil(t, f.document("k"), "released, and the document is there")
	}
}

func TestReleaseTwiceOrAfterALossIsHarmless(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(), f.client()
	l := f.acquire(one, "k")
	f.release(l)
	next := f.acquire(two, "k")
	f.release(l)
	f.mustHold(next)
	f.release(next)

	lost := f.acquire(one, "k", mongolock.TTL(700*time.Millisecond), mongolock.NoRenewal())
	f.await(lost.Done(), "the end of the lease")
	next = f.acquire(two, "k")
	for range 3 {
		assert.ErrorIs(t, lost.Release(), mongolock.ErrLost, "Release of what was lost")
	}
	f.mustHold(next)
	f.release(next)
}

func TestKeysOwnersAndNotesOfEveryOddKindWork(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(mongolock.WithOwner("$owner.$$ROOT")), f.client()
	for _, key := range []string{
		"$x", "a.b", "..", ".", "$", "$set", " ", "\t\n", "a\x00b", "\x00", "🔒", "/", "/a//b/", "_id", "mongolock", "{}", `"'\`,
		strings.Repeat("k", 1024), strings.Repeat("é", 512),
	} {
		l, err := one.TryAcquire(f.ctx(), key, mongolock.Note("$note \x00 ."))
		require.NoError(t, err, "%.20q", key)
		_, err = two.TryAcquire(f.ctx(), key)
		assert.ErrorIs(t, err, mongolock.ErrHeld, "%.20q: another got", key)
		status, err := two.Inspect(f.ctx(), key)
		if err != nil || status.Key != key || len(status.Holders) != 1 || status.Holders[0].Owner != "$owner.$$ROOT" || status.Holders[0].Note != "$note \x00 ." {
			t.Errorf("%.20q: shown %+v, %v", key, status, err)
		}
		f.release(l)
	}
	before := f.count()
	for _, key := range []string{"", strings.Repeat("k", 1025), strings.Repeat("é", 513), "a\xffb", "\xed\xa0\x80"} {
		l, err := one.Acquire(f.ctx(), key)
		assert.Error(t, err, "%.20q", key)
		assert.Nil(t, l, "%.20q: %v, %v", key, l, err)
		assert.NotErrorIs(t, err, mongolock.ErrHeld, "%.20q", key)
	}
	assert.Equal(t, before, f.count(), "something was written under a key that was refused")
}

// count is the number of documents in the collection.
func (f *fixture) count() int64 {
	f.t.Helper()
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{})
	require.NoError(f.t, err)
	return n
}

func TestOptionsOutOfRangeAreRefusedByNameAndNothingIsSent(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	c, tap := f.tapped()
	for want, opt := range map[string]mongolock.AcquireOption{
		"TTL(-1s)": mongolock.TTL(-time.Second), "TTL(0s)": mongolock.TTL(0), "TTL(99ms)": mongolock.TTL(99 * time.Millisecond), "TTL(8784h0m0s)": mongolock.TTL(366 * 24 * time.Hour),
		"MaxHold(0s)": mongolock.MaxHold(0), "MaxWait(-1ns)": mongolock.MaxWait(-1), "MinHold(0s)": mongolock.MinHold(0),
	} {
		l, err := c.Acquire(f.ctx(), "k", opt)
		assert.Nil(t, l, "%s: %v, %v", want, l, err)
		assert.ErrorContains(t, err, want)
		if both, ok := opt.(mongolock.ClientOption); ok {
			_, err := mongolock.New(f.coll, both)
			assert.ErrorContains(t, err, want, "New")
		}
	}
	for want, opt := range map[string]mongolock.ClientOption{"WithMargin(-1ms)": mongolock.WithMargin(-time.Millisecond), "WithMargin(16s)": mongolock.WithMargin(16 * time.Second)} {
		_, err := mongolock.New(f.coll, opt)
		assert.ErrorContains(t, err, want)
	}
	assert.Empty(t, tap.Take(), "commands")
}

func TestALeaseNotRenewedIsRefusedJustBeforeItsEndAndGrantedJustAfter(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(), f.client()
	l := f.acquire(one, "k", mongolock.TTL(1500*time.Millisecond), mongolock.NoRenewal())
	inside.Abandon(l)
	honoured := inside.Honoured(l)
	var refused, granted time.Time
	var taken *mongolock.Lease
	for taken == nil {
		asked := time.Now()
		next, err := two.TryAcquire(f.ctx(), "k")
		switch {
		case err == nil:
			taken, granted = next, time.Now()
		case errors.Is(err, mongolock.ErrHeld):
			refused = asked
			require.NotNil(t, f.document("k"), "the old document is gone")
		default:
			t.Fatal(err)
		}
	}
	assert.False(t, granted.Before(honoured), "granted %v before the end", honoured.Sub(granted))
	f.within(100*time.Millisecond, honoured.Sub(refused), "from the last refusal to the end")
	f.within(slack, granted.Sub(honoured), "granted after the end")
	f.mustHold(taken)
	f.release(taken)
}

func TestADocumentOfForeignShapeIsLeftAloneByEverything(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	c := f.client(mongolock.TTL(500 * time.Millisecond))
	for i, shape := range []bson.D{
		{{Key: "name", Value: "somebody's"}},
		{{Key: "expireAt", Value: time.UnixMilli(1)}},
		{{Key: "expireAt", Value: time.Now().Add(-time.Hour)}, {Key: "holders", Value: bson.D{}}},
		{{Key: "mongolock", Value: 2}, {Key: "expireAt", Value: time.UnixMilli(1)}},
	} {
		key := fmt.Sprint("k", i)
		_, err := f.coll.InsertOne(f.ctx(), append(bson.D{{Key: "_id", Value: key}}, shape...))
		require.NoError(t, err)
		before := f.document(key)
		_, tryErr := c.TryAcquire(f.ctx(), key)
		ctx, cancel := context.WithTimeout(f.ctx(), 2*time.Second)
		_, waitErr := c.Acquire(ctx, key)
		cancel()
		_, inspectErr := c.Inspect(f.ctx(), key)
		_, breakErr := c.Break(f.ctx(), key, "why", 0)
		for what, err := range map[string]error{"TryAcquire": tryErr, "Acquire": waitErr, "Inspect": inspectErr, "Break": breakErr} {
			assert.ErrorIs(t, err, mongolock.ErrForeign, "%s of %v answers", what, shape)
			assert.NotErrorIs(t, err, context.DeadlineExceeded, "%s of %v answers", what, shape)
		}
		after := f.document(key)
		assert.True(t, bytes.Equal(before, after), "it was\n%v\nand is\n%v", before, after)
	}
	for s, err := range c.List(f.ctx(), "") {
		t.Errorf("List shows %+v, %v", s, err)
	}
}

func TestAKeyDeletedByHandIsFreeAndItsHolderLearnsAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(), f.client()
	l := f.acquire(one, "k", mongolock.TTL(1500*time.Millisecond))
	_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}})
	require.NoError(t, err)
	deleted := time.Now()
	next, err := two.TryAcquire(f.ctx(), "k")
	require.NoError(t, err)
	f.within(500*time.Millisecond+slack, f.await(l.Done(), "the holder learns").Sub(deleted), "its holder learnt of it")
	assert.ErrorIs(t, l.Err(), mongolock.ErrLost, "it ended with %v; token %d after %d", l.Err(), next.Token(), l.Token())
	assert.Greater(t, next.Token(), l.Token(), "it ended with %v; token after", l.Err())
	f.mustHold(next)
	f.release(next)
}

func TestAHeldLockIsNeverSeenWithoutItsExpiry(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(mongolock.TTL(5*time.Second)), f.client(mongolock.TTL(5*time.Second))
	stop := make(chan struct{})
	var looks, seen int
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			raw, err := f.coll.FindOne(context.Background(), bson.D{{Key: "_id", Value: "k"}}).Raw()
			looks++
			if err != nil {
				continue
			}
			seen++
			d := readLock(raw)
			assert.Equal(t, 1, d.Mark, "seen: %v", raw)
			assert.Len(t, d.Holders, 1, "seen: %v", raw)
			assert.False(t, d.ExpireAt.IsZero(), "seen: %v", raw)
			assert.False(t, d.ExpireAt.Before(d.only().ExpireAt), "seen: %v", raw)
		}
	})
	for i := range 60 {
		c := []*mongolock.Client{one, two}[i%2]
		l := f.acquire(c, "k")
		if i%3 == 0 {
			assert.NoError(t, l.Renew(f.ctx()))
		}
		f.release(l)
	}
	close(stop)
	wg.Wait()
	assert.NotZero(t, seen, "%d looks saw no lock: the test shows nothing", looks)
}

func TestStartingClientsSendsNothingAndTouchesNobodysLock(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	l := f.acquire(f.client(), "k")
	before := f.document("k")
	for range 5 {
		c, tap := f.tapped()
		assert.Empty(t, tap.Take(), "New sent commands")
		f.release(f.acquire(c, "another"))
		assert.NoError(t, c.Close())
	}
	assert.True(t, bytes.Equal(before, f.document("k")), "somebody's lock was touched")
	f.mustHold(l)
	f.release(l)
}

func TestTheIndexIsMadeOnceByTenClientsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "ttl")
	var wg sync.WaitGroup
	for i := range 10 {
		coll := f.connect(f.uri).Database(f.coll.Database().Name()).Collection(f.coll.Name())
		c, err := mongolock.New(coll)
		require.NoError(t, err)
		wg.Go(func() {
			defer c.Close()
			l, err := c.Acquire(f.ctx(), fmt.Sprint("k", i))
			if err != nil {
				t.Error(err)
				return
			}
			assert.NoError(t, l.Release())
		})
	}
	wg.Wait()
	specs, err := f.coll.Indexes().ListSpecifications(f.ctx())
	require.NoError(t, err)
	ttls := 0
	for _, s := range specs {
		if s.ExpireAfterSeconds != nil {
			ttls++
		}
	}
	assert.Equal(t, 1, ttls, "%d indexes of them for the TTL", len(specs))
	assert.Len(t, specs, 2, "indexes")
}

func TestALeaseOutlivesManyTTLsAndKeepsItsToken(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	const ttl = 2 * time.Second
	c, rival := f.client(mongolock.TTL(ttl)), f.client()
	one, two := f.acquire(c, "one"), f.acquire(c, "two") // renewed together
	token := one.Token()
	for range 6 {
		time.Sleep(ttl / 2)
		for _, key := range []string{"one", "two"} {
			_, err := rival.TryAcquire(f.ctx(), key)
			require.ErrorIs(t, err, mongolock.ErrHeld, "another")
		}
	}
	assert.Equal(t, token, one.Token(), "token %d, was %d; %v, %v left", one.Token(), token, one.Err(), one.Remaining())
	assert.NoError(t, one.Err(), "token %d, was %d; %v, %v left", one.Token(), token, one.Err(), one.Remaining())
	assert.LessOrEqual(t, one.Remaining(), ttl, "after many TTLs")
	f.release(one)
	f.release(two)
}

func TestARenewalKeepsTheTokenAndTheHoldersName(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	l := f.acquire(f.client(), "k", mongolock.Note("note"))
	before := readLock(f.document("k"))
	token := l.Token()
	after := before
	for renewals := 0; renewals < 3 || !after.ExpireAt.After(before.ExpireAt); renewals++ {
		require.LessOrEqual(t, renewals, 200, "not renewed") // each writes an end by a sample better or worse than the first; time goes on meanwhile
		require.NoError(t, l.Renew(f.ctx()))
		after = readLock(f.document("k"))
		time.Sleep(5 * time.Millisecond)
	}
	assert.Equal(t, token, l.Token(), "it was %+v and is %+v", before, after)
	assert.Equal(t, before.Rev, after.Rev, "it was %+v and is %+v", before, after)
	assert.True(t, after.only().Since.Equal(before.only().Since), "it was %+v and is %+v", before, after)
	assert.Equal(t, "note", after.only().Note, "it was %+v and is %+v", before, after)
	f.release(l)
}

func TestAReleaseIsNoLossAndStopsTheRenewals(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	c, tap := f.tapped(mongolock.TTL(1800 * time.Millisecond))
	f.release(f.acquire(c, "warm"))
	tap.Take()
	l := f.acquire(c, "k")
	ctx := l.Context(f.ctx())
	time.Sleep(1500 * time.Millisecond)
	f.release(l)
	err := l.Err()
	assert.ErrorIs(t, err, mongolock.ErrReleased, "it ended with %v, its context with %v", err, context.Cause(ctx))
	assert.NotErrorIs(t, err, mongolock.ErrLost, "it ended with %v, its context with %v", err, context.Cause(ctx))
	assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrReleased, "it ended with %v, its context with", err)
	assert.GreaterOrEqual(t, writes(tap.Take()), 3, "it was not renewed: the test shows nothing")
	time.Sleep(800 * time.Millisecond)
	assert.Zero(t, writes(tap.Take()), "writes after the release")
}

func TestARenewalRacingTheReleaseRevivesNothing(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(), f.client()
	for i := range 25 {
		l := f.acquire(one, "k")
		renewed := make(chan error, 1)
		go func() { renewed <- l.Renew(f.ctx()) }()
		f.release(l)
		next, err := two.TryAcquire(f.ctx(), "k")
		require.NoError(t, err, "round %d: released", i)
		if err := <-renewed; err != nil && !errors.Is(err, mongolock.ErrReleased) && !errors.Is(err, mongolock.ErrLost) {
			t.Errorf("the renewal answers %v", err)
		}
		assert.ErrorIs(t, l.Err(), mongolock.ErrReleased, "reported as")
		f.mustHold(next)
		f.release(next)
	}
}

func TestMaxHoldEndsALeaseThatWouldRenewForEver(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	begin := time.Now()
	l := f.acquire(f.client(), "k", mongolock.TTL(1500*time.Millisecond), mongolock.MaxHold(2500*time.Millisecond))
	ended := f.await(l.Done(), "MaxHold")
	f.within(2500*time.Millisecond+slack, ended.Sub(begin), "the lease")
	assert.GreaterOrEqual(t, ended.Sub(begin), 2300*time.Millisecond, "it ended after %v with %v", ended.Sub(begin), l.Err())
	assert.ErrorIs(t, l.Err(), mongolock.ErrMaxHold, "it ended after %v with", ended.Sub(begin))
	assert.ErrorIs(t, l.Err(), mongolock.ErrLost, "it ended after %v with", ended.Sub(begin))
	f.mustBeGone("k", ended.Add(time.Second))
}

func TestAWaiterGetsTheKeySoonAfterTheReleaseAndNeverBefore(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(), f.client()
	for name, rival := range map[string]*mongolock.Client{"the same client": one, "another": two} {
		l := f.acquire(one, "k")
		wait := f.inBackground(f.ctx(), rival, "k")
		time.Sleep(400 * time.Millisecond)
		assert.Empty(t, wait, "%s: granted while held", name)
		released := time.Now()
		f.release(l)
		a := f.granted(wait)
		f.within(slack+pollPause, a.when.Sub(released), fmt.Sprintf("%s: granted", name))
		assert.Greater(t, a.lease.Token(), l.Token(), "%s: the token rises", name)
		f.release(a.lease)
	}
}

func TestAWaiterGetsAnExpiredKeySoonAfterItsEndAndNeverBefore(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	f.expiresInTime(f.client(mongolock.TTL(700*time.Millisecond)), f.client(), 700*time.Millisecond)
}

func TestTheEndOfAWaitMatchesItsContextAndErrHeld(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	l := f.acquire(f.client(mongolock.WithOwner("holder")), "k")
	c := f.client()
	cause := errors.New("enough")
	for name, row := range map[string]struct {
		ctx    func() (context.Context, context.CancelFunc)
		opts   []mongolock.AcquireOption
		within error
	}{
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(f.ctx(), 300*time.Millisecond)
		}, nil, context.DeadlineExceeded},
		"cancel": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(f.ctx())
			timer := time.AfterFunc(300*time.Millisecond, func() { cancel(cause) })
			return ctx, func() { timer.Stop() }
		}, nil, cause},
		"MaxWait": {func() (context.Context, context.CancelFunc) { return f.ctx(), func() {} }, []mongolock.AcquireOption{mongolock.MaxWait(300 * time.Millisecond)}, mongolock.ErrHeld},
	} {
		ctx, cancel := row.ctx()
		begin := time.Now()
		got, err := c.Acquire(ctx, "k", row.opts...)
		cancel()
		f.within(300*time.Millisecond+slack, time.Since(begin), name)
		var held *mongolock.HeldError
		require.Nil(t, got, "%s: answered %v, %v", name, got, err)
		require.ErrorIs(t, err, row.within, "%s", name)
		require.ErrorAs(t, err, &held, "%s", name)
		require.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "%s", name)
		require.Len(t, held.Holders, 1, "%s: told %+v", name, held.Status)
		assert.Equal(t, "holder", held.Holders[0].Owner, "%s: told %+v", name, held.Status)
	}
	assert.NoError(t, c.Close())
	f.mustHold(l)
	f.release(l)
}

func TestAContextAlreadyDoneSendsNothing(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	c, tap := f.tapped()
	ctx, cancel := context.WithCancel(f.ctx())
	cancel()
	for _, acquire := range []func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error){c.Acquire, c.TryAcquire} {
		l, err := acquire(ctx, "k")
		assert.Nil(t, l, "answered %v, %v", l, err)
		assert.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, mongolock.ErrHeld)
		assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
	}
	assert.Empty(t, tap.Take(), "commands")
}

// contend lets contenders of several processes take the key in turn, each for a
// moment. It answers how many were served and how many met another inside.
func (f *fixture) contend(clients []*mongolock.Client, n int, section time.Duration) (served, met int64) {
	f.t.Helper()
	var wg sync.WaitGroup
	var inside, done, two atomic.Int64
	var mu sync.Mutex // protects tokens
	var tokens []int64
	for i := range n {
		wg.Go(func() {
			l, err := clients[i%len(clients)].Acquire(f.ctx(), "k")
			if err != nil {
				f.t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				two.Add(1)
			}
			mu.Lock()
			tokens = append(tokens, l.Token())
			mu.Unlock()
			time.Sleep(section)
			inside.Add(-1)
			done.Add(1)
			assert.NoError(f.t, l.Release())
		})
	}
	wg.Wait()
	assert.True(f.t, slices.IsSorted(tokens), "the tokens are out of order")
	slices.Sort(tokens)
	assert.Len(f.t, slices.Compact(tokens), n, "two grants have one token")
	return done.Load(), two.Load()
}

func TestAHundredContendersAreAllServedOneAtATime(t *testing.T) {
	// Not parallel: it keeps the server busy.
	f := newFixture(t, "atomic")
	clients := []*mongolock.Client{f.client(), f.client(), f.client(), f.client()}
	served, met := f.contend(clients, 100, 10*time.Millisecond)
	assert.EqualValues(t, 100, served, "served")
	assert.Zero(t, met, "met another inside")
}

// tries are simultaneous, each by a client of its own. It answers who won.
func (f *fixture) tries(clients []*mongolock.Client, key string) (winners []*mongolock.Lease) {
	f.t.Helper()
	begin := make(chan struct{})
	answers := make(chan outcome, len(clients))
	for _, c := range clients {
		go func() {
			<-begin
			l, err := c.TryAcquire(f.ctx(), key)
			answers <- outcome{lease: l, err: err}
		}()
	}
	close(begin)
	for range clients {
		a := <-answers
		var held *mongolock.HeldError
		switch {
		case a.err == nil:
			winners = append(winners, a.lease)
		case !errors.As(a.err, &held):
			f.t.Errorf("answered %v", a.err)
		case mongo.IsDuplicateKeyError(a.err):
			f.t.Errorf("a raw error of the database: %v", a.err)
		}
	}
	return winners
}

func (f *fixture) clients(n int, opts ...mongolock.ClientOption) (all []*mongolock.Client) {
	f.t.Helper()
	for range n {
		all = append(all, f.client(opts...))
	}
	return all
}

func TestOfManySimultaneousTriesOneWins(t *testing.T) {
	// Not parallel: it keeps the server busy.
	f := newFixture(t, "atomic")
	clients := f.clients(20)
	for round := range 5 {
		fresh, late, odd := fmt.Sprint("new ", round), fmt.Sprint("expired ", round), fmt.Sprint("swapped ", round)
		f.insertExpired(late, -time.Second)
		f.insertExpired(odd, time.Minute)
		for _, key := range []string{fresh, late, odd} {
			winners := f.tries(clients, key)
			require.Len(t, winners, 1, "%s: winners", key)
			f.mustHold(winners[0])
			f.release(winners[0])
		}
	}
}

func TestAClientThatReacquiresInALoopDoesNotStarveAnother(t *testing.T) {
	// Not parallel: it keeps the server busy.
	f := newFixture(t, "atomic")
	greedy, modest := f.client(), f.client()
	ctx, stop := context.WithCancel(f.ctx())
	var wg sync.WaitGroup
	for range 2 { // one of them always stands in line
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := greedy.Acquire(ctx, "k")
				if err != nil {
					continue
				}
				time.Sleep(2 * time.Millisecond)
				_ = l.Release()
			}
		})
	}
	for range 3 {
		begin := time.Now()
		l := f.acquire(modest, "k")
		f.within(5*time.Second, time.Since(begin), "served")
		f.release(l)
	}
	stop()
	wg.Wait()
}

func TestWaitersOfOneClientAreServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	f := newFixture(t) // not on FerretDB
	c := f.client()
	l := f.acquire(c, "k")
	var mu sync.Mutex // protects order
	var order []int
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			l, err := c.Acquire(f.ctx(), "k")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			f.release(l)
		})
		f.until(time.Now().Add(time.Second), "it stands in line", func() bool {
			return inside.Look(c, "").Waiters == i+1
		})
	}
	f.release(l)
	wg.Wait()
	assert.True(t, slices.IsSorted(order), "served in the order %v", order)
}

func TestTokensRiseWhateverEndsAHold(t *testing.T) {
	// Not parallel: it keeps the server busy.
	f := newFixture(t, "atomic")
	clients := f.clients(3, mongolock.TTL(5*time.Second))
	var last int64
	tryAcquire := func(l *mongolock.Lease) {
		t.Helper()
		if l.Token() <= last {
			t.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
	}
	remove := func(filter bson.D) {
		if _, err := f.coll.DeleteMany(f.ctx(), filter); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		c := clients[i%3]
		l := f.acquire(c, "k")
		tryAcquire(l)
		switch i % 7 {
		case 0, 1: // release
			f.release(l)
		case 2: // deletion by hand
			remove(bson.D{{Key: "_id", Value: "k"}})
			_ = l.Release()
		case 3: // purge
			remove(bson.D{})
			_ = l.Release()
		case 4: // hand-over
			wait := f.inBackground(f.ctx(), c, "k")
			f.waits(c, "k")
			f.release(l)
			next := f.granted(wait).lease
			tryAcquire(next)
			f.release(next)
		case 5: // takeover of one that ran out
			past := time.Now().Add(-time.Second)
			_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}, bson.D{{Key: "$set", Value: bson.D{
				{Key: fieldExpireAt, Value: past}, {Key: fieldHolders + "." + l.ID() + "." + fieldExpireAt, Value: past},
			}}})
			require.NoError(t, err)
			next := f.acquire(clients[(i+1)%3], "k")
			tryAcquire(next)
			_ = l.Release()
			f.release(next)
		case 6: // every process starts anew
			f.release(l)
			if i%49 == 6 {
				for j := range clients {
					assert.NoError(t, clients[j].Close())
					clients[j] = f.client(mongolock.TTL(5 * time.Second))
				}
			}
		}
	}
}
