package system

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// endOf tells when a lease's Done is closed.
func endOf(l *mongolock.Lease) <-chan time.Time {
	done := make(chan time.Time, 1)
	go func() { <-l.Done(); done <- time.Now() }()
	return done
}

func TestRenewalsThatHangOrFailEndTheLeaseBeforeARivalIsGranted(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]func(f *fixture, p *faultproxy.Proxy){
		"half-open":             func(f *fixture, p *faultproxy.Proxy) { f.on(p, renewalCommands, faultproxy.HalfOpen()) },
		"reply never comes":     func(f *fixture, p *faultproxy.Proxy) { f.on(p, renewalCommands.After(1), faultproxy.SwallowReply()) },
		"every packet is lost":  func(_ *fixture, p *faultproxy.Proxy) { p.Silence() },
		"the server is gone":    func(_ *fixture, p *faultproxy.Proxy) { p.Cut() },
		"not primary for ever":  func(f *fixture, p *faultproxy.Proxy) { f.on(p, renewalCommands, faultproxy.NotPrimary()) },
		"commands are dropped":  func(f *fixture, p *faultproxy.Proxy) { f.on(p, renewalCommands, faultproxy.DropCommand()) },
		"no right to any more":  func(f *fixture, p *faultproxy.Proxy) { f.on(p, renewalCommands, faultproxy.Fail(13)) },
		"write concern refused": func(f *fixture, p *faultproxy.Proxy) { f.on(p, renewalCommands, faultproxy.Fail(100)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			c, proxy := f.behind(withRetries, mongolock.TTL(pace.Of(time.Second))) // its margin is a tenth
			l := f.acquire(c, "k")
			ctx := l.Context(f.ctx())
			done := endOf(l)
			cause(f, proxy)
			a := f.granted(f.inBackground(f.ctx(), f.client(mongolock.TTL(pace.Of(5*time.Second))), "k"))
			require.Error(t, l.Err(), "two hold the key")
			ended := <-done
			assert.True(t, ended.Before(a.when), "Done was closed %v after the rival's grant", ended.Sub(a.when))
			honoured := inside.Honoured(l)
			assert.False(t, a.when.Before(honoured), "granted %v before the store's word ended", honoured.Sub(a.when))
			assert.ErrorIs(t, l.Err(), mongolock.ErrLost, "ended with %v, its context with %v", l.Err(), context.Cause(ctx))
			assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrLost, "ended with %v, its context with", l.Err())
			assert.Error(t, ctx.Err(), "ended with %v, its context with %v", l.Err(), context.Cause(ctx))
			assert.Greater(t, a.lease.Token(), l.Token(), "the token rises")
			f.endFaults()
			f.until(time.Now().Add(3*time.Second), "Release reports the loss", func() bool { return errors.Is(l.Release(), mongolock.ErrLost) })
			f.mustHold(a.lease)
			f.release(a.lease)
		})
	}
}

func TestRenewalsThatFailAndThenWorkLoseNothing(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Action{
		"command dropped":     faultproxy.DropCommand(),
		"reply dropped":       faultproxy.DropReply(),
		"not primary":         faultproxy.NotPrimary(),
		"interrupted":         faultproxy.NotPrimaryReply(),
		"write concern error": faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout),
		"slow":                faultproxy.DelayReply(200 * time.Millisecond),
		"half-open":           faultproxy.HalfOpen(),
		"no right":            faultproxy.Fail(13),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("alone", func(t *testing.T) {
				t.Parallel()
				failsOnce(t, renewalCommands, fault, "k")
			})
			t.Run("together", func(t *testing.T) {
				t.Parallel()
				failsOnce(t, bulkCommands, fault, "k", "j", "i")
			})
		})
	}
}

// failsOnce holds keys while one renewal of them, or one bulk, meets a fault.
func failsOnce(t *testing.T, renewal faultproxy.Matcher, fault faultproxy.Action, keys ...string) {
	t.Helper()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(pace.Of(5*time.Second)))
	var all []*mongolock.Lease
	for _, key := range keys {
		all = append(all, f.acquire(c, key))
	}
	rule := f.on(proxy, renewal.Next(1), fault)
	f.await(rule.Fired(), "a renewal")
	first := inside.Honoured(all[0])
	f.until(time.Now().Add(5*time.Second), "renewed or lost", func() bool {
		return all[0].Err() != nil || inside.Honoured(all[0]).After(first.Add(100*time.Millisecond))
	})
	for _, l := range all {
		f.mustHold(l)
		f.release(l)
	}
}

func TestALostReplyWithTheTimeOfABulkLosesNoLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(pace.Of(3*time.Second)))
	one, two := f.acquire(c, "one"), f.acquire(c, "two")
	first := inside.Honoured(one)
	clock := faultproxy.Command("hello", "isMaster").Where(func(c bson.Raw) bool {
		db, _ := c.Lookup("$db").StringValueOK()
		return db != "admin" // the driver's own
	})
	if testserver.Has("router") { // there the documents tell the time
		clock = faultproxy.Command("find")
	}
	rule := f.on(proxy, clock.Next(1), faultproxy.DropReply())
	f.await(rule.Fired(), "what tells the time of a bulk")
	f.until(time.Now().Add(3*time.Second), "renewed", func() bool {
		return inside.Honoured(one).After(first.Add(100*time.Millisecond)) && inside.Honoured(two).After(first.Add(100*time.Millisecond))
	})
	f.release(one)
	f.release(two)
}

func TestARenewalAnsweredAfterTheDeadlineRevivesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(pace.Of(time.Second)))
	l := f.acquire(c, "k")
	rule := f.on(proxy, renewalCommands, faultproxy.HoldReply()) // the server applied it
	f.await(l.Done(), "the end of the lease")
	rule.Release()
	time.Sleep(200 * time.Millisecond) // real: an absence; the late reply has been read by now
	assert.ErrorIs(t, l.Err(), mongolock.ErrLost, "revived")
	assert.Zero(t, l.Remaining(), "revived: %v", l.Err())
}

func TestALateRenewalLeavesTheNextHolderAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(pace.Of(time.Second)))
	l := f.acquire(c, "k")
	rule := f.on(proxy, renewalCommands, faultproxy.Orphan())
	f.await(rule.Fired(), "a renewal")
	f.on(proxy, releaseCommands.Next(1), faultproxy.DelayCommand(0))
	if err := l.Release(); err != nil && !errors.Is(err, mongolock.ErrLost) && !errors.Is(err, mongolock.ErrOutcomeUnknown) {
		t.Error(err)
	}
	next := f.acquire(f.client(mongolock.TTL(20*time.Second)), "k")
	before := f.document("k")
	rule.Release()
	f.await(rule.Applied(), "the late renewal's arrival")
	after := f.document("k")
	assert.True(t, bytes.Equal(before, after), "the late renewal made\n%v\nof\n%v", after, before)
	f.release(next)
}

func TestAReleaseWhoseReplyIsLostFreesTheKey(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped":       faultproxy.DropReply(),
		"interrupted":         faultproxy.NotPrimaryReply(),
		"write concern error": faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout),
		"command dropped":     faultproxy.DropCommand(),
		"not primary":         faultproxy.NotPrimary(),
		"reset":               faultproxy.Reset(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, ttl := range []time.Duration{20 * time.Second, 2 * time.Minute} { // w: 1, and majority
				f := newFixture(t)
				c, proxy := f.behind(noRetries, mongolock.TTL(ttl))
				l := f.acquire(c, "k")
				rival := f.client()
				wait := f.inBackground(f.ctx(), rival, "k")
				f.waits(rival, "k")
				f.on(proxy, releaseCommands.Next(1), lost)
				freed := time.Now()
				err := l.Release()
				assert.NotErrorIs(t, err, mongolock.ErrLost, "Release")
				assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown, "Release")
				assert.ErrorIs(t, l.Err(), mongolock.ErrReleased, "the lease")
				a := f.granted(wait)
				f.within(time.Second+pollPause, a.when.Sub(freed), "another was granted")
				assert.NoError(t, l.Release(), "repeated, it")
				f.mustHold(a.lease)
				f.release(a.lease)
			}
		})
	}
}

func TestTheDriversRetryOfAReleaseIsNotNoticed(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped": faultproxy.DropReply(), "interrupted": faultproxy.NotPrimaryReply(), "not primary": faultproxy.NotPrimary(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "retryable")
			c, proxy := f.behind(withRetries)
			l := f.acquire(c, "k")
			f.on(proxy, releaseCommands.Next(1), lost)
			f.release(l)
			f.mustBeAbsent("k")
		})
	}
}

func TestAReleaseThatFailsGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(20*time.Second))
	l := f.acquire(c, "k")
	f.on(proxy, releaseCommands.Next(3), faultproxy.Fail(faultproxy.CodeNotWritablePrimary))
	assert.ErrorIs(t, l.Release(), mongolock.ErrOutcomeUnknown, "Release")
	f.mustBeGone("k", time.Now().Add(3*time.Second))
	f.until(time.Now().Add(time.Second), "settled", func() bool { return l.Release() == nil })
}

func TestAReleaseThatHangsTakesAtMostFiveSeconds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(20*time.Second))
	plain, handed := f.acquire(c, "plain"), f.acquire(c, "handed")
	wait := f.inBackground(f.ctx(), c, "handed")
	f.waits(c, "handed")
	f.on(proxy, releaseCommands, faultproxy.HalfOpen())
	f.on(proxy, handOverCommands, faultproxy.HalfOpen())
	begin := time.Now()
	answers := make(chan error, 2)
	go func() { answers <- plain.Release() }()
	go func() { answers <- handed.Release() }()
	for range 2 {
		assert.ErrorIs(t, <-answers, mongolock.ErrOutcomeUnknown, "Release")
	}
	f.within(releaseMost+slack, time.Since(begin), "the call")
	assert.Error(t, plain.Err(), "the leases go on")
	assert.Error(t, handed.Err(), "the leases go on")
	for _, rule := range f.rules {
		rule.Remove()
	}
	a := f.granted(wait)
	f.mustHold(a.lease)
	f.mustBeGone("plain", time.Now().Add(releaseMost+time.Second))
	f.release(a.lease)
}

// handOver releases a lease while a waiter of the same client stands in the queue, and injects
// a fault into the transfer. It returns the waiter's grant and Release's error.
func handOver(t *testing.T, f *fixture, c *mongolock.Client, proxy *faultproxy.Proxy, fault faultproxy.Action) (a outcome, old *mongolock.Lease, err error) {
	t.Helper()
	old = f.acquire(c, "k")
	wait := f.inBackground(f.ctx(), c, "k")
	f.waits(c, "k")
	rule := f.on(proxy, handOverCommands.Next(1), fault)
	err = old.Release()
	require.Equal(t, 1, rule.Hits(), "nothing was handed over: the test shows nothing")
	a = f.granted(wait)
	return a, old, err
}

func TestAHandOverWhoseReplyIsLostLeavesNeitherAndTheWaiterIsServed(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped":       faultproxy.DropReply(),
		"interrupted":         faultproxy.NotPrimaryReply(),
		"write concern error": faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout),
		"command dropped":     faultproxy.DropCommand(),
		"not primary":         faultproxy.NotPrimary(),
		"left in a socket":    faultproxy.Orphan(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			c, proxy := f.behind(noRetries, mongolock.TTL(pace.Of(5*time.Second)))
			begin := time.Now()
			a, old, err := handOver(t, f, c, proxy, lost)
			assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown, "Release")
			assert.NotErrorIs(t, err, mongolock.ErrLost, "Release")
			f.within(2*time.Second, a.when.Sub(begin), "the waiter was served")
			assert.Greater(t, a.lease.Token(), old.Token(), "the token rises")
			assert.NoError(t, old.Release(), "repeated, Release")
			assert.NotContains(t, strings.Join(f.holders("k"), " "), old.ID(), "the old lease is still there")
			for _, rule := range f.rules { // what was left in a socket arrives
				rule.Release()
			}
			time.Sleep(50 * time.Millisecond) // real: the server executes what arrived
			f.mustHold(a.lease)
			f.release(a.lease)
		})
	}
}

func TestTheDriversRetryOfAHandOverIsNotNoticed(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped": faultproxy.DropReply(), "not primary": faultproxy.NotPrimary(), "left in a socket": faultproxy.Orphan(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "retryable")
			c, proxy := f.behind(withRetries, mongolock.TTL(pace.Of(5*time.Second)))
			a, _, err := handOver(t, f, c, proxy, lost)
			assert.NoError(t, err, "Release")
			f.rules[0].Release()
			f.mustHold(a.lease)
			f.release(a.lease)
		})
	}
}

func TestAHandOverThatIsRefusedIsAnOrdinaryRelease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(pace.Of(5*time.Second)))
	a, _, err := handOver(t, f, c, proxy, faultproxy.Fail(13))
	assert.NoError(t, err, "Release")
	f.mustHold(a.lease)
	f.release(a.lease)
}

func TestAHandOverOfADeletedKeyReportsTheLossAndServesTheWaiter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.client(mongolock.TTL(20 * time.Second))
	l := f.acquire(c, "k")
	wait := f.inBackground(f.ctx(), c, "k")
	time.Sleep(50 * time.Millisecond) // real: it waits in the local queue
	_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}})
	require.NoError(t, err)
	assert.ErrorIs(t, l.Release(), mongolock.ErrLost, "Release")
	a := f.granted(wait)
	f.mustHold(a.lease)
	f.release(a.lease)
}

func TestATicketWhoseResumeFailedStaysGoodUnlessTheResumeWasApplied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lost  faultproxy.Action
		stays bool
	}{
		"command dropped": {faultproxy.DropCommand(), true},
		"not primary":     {faultproxy.NotPrimary(), true},
		"reply dropped":   {faultproxy.DropReply(), false}, // undone: the key is free
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			l := f.acquire(f.client(mongolock.TTL(pace.Of(6*time.Second))), "k")
			ticket, err := l.Detach(f.ctx())
			require.NoError(t, err)
			other, proxy := f.behind(noRetries)
			f.on(proxy, handOverCommands.Next(1), c.lost)
			again, err := other.Resume(f.ctx(), ticket)
			mustBeUnknown(t, again, err)
			if !c.stays {
				f.mustBeGone("k", time.Now().Add(time.Second))
				again, err = other.Resume(f.ctx(), ticket)
				assert.Nil(t, again, "resumed once more: %v, %v", again, err)
				assert.ErrorIs(t, err, mongolock.ErrLost, "resumed once more")
				return
			}
			f.until(time.Now().Add(3*time.Second), "resumed", func() bool {
				again, err = other.Resume(f.ctx(), ticket)
				return err == nil
			})
			assert.Equal(t, l.Token(), again.Token(), "the token is kept")
			f.mustHold(again)
			f.release(again)
		})
	}
}

func TestCloseWithoutTheServerIsBoundedAndNamesTheKeysItLeaves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(6*time.Second))
	l := f.acquire(c, "left behind")
	proxy.Silence()
	begin := time.Now()
	err := c.Close()
	f.within(600*time.Millisecond+releaseMost+slack, time.Since(begin), "Close")
	assert.ErrorContains(t, err, "left behind", "Close")
	assert.ErrorIs(t, l.Err(), mongolock.ErrClosed, "the lease")
	_, err = c.Acquire(f.ctx(), "k")
	assert.ErrorIs(t, err, mongolock.ErrClosed, "afterwards")
	f.granted(f.inBackground(f.ctx(), f.client(mongolock.TTL(pace.Of(5*time.Second))), "left behind"))
}

// lateRelease releases a lease whose key was freed by hand and granted again.
func lateRelease(t *testing.T) (stays bool) {
	t.Helper()
	f := newFixture(t)
	c := f.client(mongolock.NoRenewal())
	l := f.acquire(c, "k")
	_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}) // by hand
	require.NoError(t, err)
	next := f.acquire(f.client(mongolock.TTL(20*time.Second)), "k")
	if err := l.Release(); !knob.ReleaseByKey && !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("Release answers %v", err)
	}
	return f.document("k") != nil && next.Err() == nil
}

func TestAReleaseNeverFreesALaterHolder(t *testing.T) {
	t.Parallel()
	assert.True(t, lateRelease(t), "the later holder was freed")
}
