package system

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/knob"
)

// endOf is when a lease's Done was closed.
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
			c, proxy := f.behind(withRetries, mongolock.TTL(time.Second))
			l := f.acquire(c, "k")
			ctx := l.Context(f.ctx())
			done := endOf(l)
			cause(f, proxy)
			a := f.granted(f.inBackground(f.ctx(), f.client(mongolock.TTL(5*time.Second)), "k"))
			if l.Err() == nil {
				t.Fatal("two hold the key")
			}
			if ended := <-done; !ended.Before(a.when) {
				t.Errorf("Done was closed %v after the rival's grant", ended.Sub(a.when))
			}
			if honoured := inside.Honoured(l); a.when.Before(honoured) {
				t.Errorf("granted %v before the store's word ended", honoured.Sub(a.when))
			}
			if !errors.Is(l.Err(), mongolock.ErrLost) || !errors.Is(context.Cause(ctx), mongolock.ErrLost) || ctx.Err() == nil {
				t.Errorf("ended with %v, its context with %v", l.Err(), context.Cause(ctx))
			}
			if a.lease.Token() <= l.Token() {
				t.Errorf("token %d after %d", a.lease.Token(), l.Token())
			}
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

// failsOnce holds keys while one renewal of them, or one bulk, meets with a fault.
func failsOnce(t *testing.T, renewal faultproxy.Matcher, fault faultproxy.Action, keys ...string) {
	t.Helper()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(5*time.Second))
	var all []*mongolock.Lease
	for _, key := range keys {
		all = append(all, f.acquire(c, key))
	}
	rule := f.on(proxy, renewal.Next(1), fault)
	f.await(rule.Fired(), "a renewal")
	first := inside.Honoured(all[0])
	f.until(time.Now().Add(5*time.Second), "renewed or lost", func() bool {
		return all[0].Err() != nil || inside.Honoured(all[0]).After(first)
	})
	for _, l := range all {
		f.mustHold(l)
		f.release(l)
	}
}

func TestAHelloLostAfterABulkOfRenewalsLosesNoLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(3*time.Second))
	one, two := f.acquire(c, "one"), f.acquire(c, "two")
	first := inside.Honoured(one)
	rule := f.on(proxy, faultproxy.Command("hello", "isMaster").Where(func(c bson.Raw) bool {
		db, _ := c.Lookup("$db").StringValueOK()
		return db != "admin" // the driver's own
	}).Next(1), faultproxy.DropReply())
	f.await(rule.Fired(), "the hello of a bulk")
	f.until(time.Now().Add(3*time.Second), "renewed", func() bool { return inside.Honoured(one).After(first) && inside.Honoured(two).After(first) })
	f.release(one)
	f.release(two)
}

func TestARenewalAnsweredAfterTheDeadlineRevivesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(time.Second))
	l := f.acquire(c, "k")
	rule := f.on(proxy, renewalCommands, faultproxy.HoldReply()) // the server applied it
	f.await(l.Done(), "the end of the lease")
	rule.Release()
	time.Sleep(200 * time.Millisecond)
	if !errors.Is(l.Err(), mongolock.ErrLost) || l.Remaining() != 0 {
		t.Errorf("revived: %v, %v", l.Err(), l.Remaining())
	}
}

func TestALateRenewalLeavesTheNextHolderAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(time.Second))
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
	if after := f.document("k"); !bytes.Equal(before, after) {
		t.Errorf("the late renewal made\n%v\nof\n%v", after, before)
	}
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
				if err == nil || errors.Is(err, mongolock.ErrLost) || !errors.Is(err, mongolock.ErrOutcomeUnknown) {
					t.Errorf("Release answers %v", err)
				}
				if err := l.Err(); !errors.Is(err, mongolock.ErrReleased) {
					t.Errorf("the lease says %v", err)
				}
				a := f.granted(wait)
				f.within(time.Second+pollPause, a.when.Sub(freed), "another was granted")
				if err := l.Release(); err != nil {
					t.Errorf("repeated, it answers %v", err)
				}
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
	if err := l.Release(); !errors.Is(err, mongolock.ErrOutcomeUnknown) {
		t.Errorf("Release answers %v", err)
	}
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
		if err := <-answers; !errors.Is(err, mongolock.ErrOutcomeUnknown) {
			t.Errorf("Release answers %v", err)
		}
	}
	f.within(releaseMost+slack, time.Since(begin), "the call")
	if plain.Err() == nil || handed.Err() == nil {
		t.Error("the leases go on")
	}
	for _, rule := range f.rules {
		rule.Remove()
	}
	a := f.granted(wait)
	f.mustHold(a.lease)
	f.mustBeGone("plain", time.Now().Add(releaseMost+time.Second))
	f.release(a.lease)
}

// handOver is a release with a waiter of the same client in line, whose transfer
// something befalls. It answers the waiter's grant and Release's error.
func handOver(t *testing.T, f *fixture, c *mongolock.Client, proxy *faultproxy.Proxy, fault faultproxy.Action) (a outcome, old *mongolock.Lease, err error) {
	t.Helper()
	old = f.acquire(c, "k")
	wait := f.inBackground(f.ctx(), c, "k")
	f.waits(c, "k")
	rule := f.on(proxy, handOverCommands.Next(1), fault)
	err = old.Release()
	if rule.Hits() != 1 {
		t.Fatal("nothing was handed over: the test shows nothing")
	}
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
			c, proxy := f.behind(noRetries, mongolock.TTL(5*time.Second))
			begin := time.Now()
			a, old, err := handOver(t, f, c, proxy, lost)
			if !errors.Is(err, mongolock.ErrOutcomeUnknown) || errors.Is(err, mongolock.ErrLost) {
				t.Errorf("Release answers %v", err)
			}
			f.within(2*time.Second, a.when.Sub(begin), "the waiter was served")
			if a.lease.Token() <= old.Token() {
				t.Errorf("token %d after %d", a.lease.Token(), old.Token())
			}
			if err := old.Release(); err != nil {
				t.Errorf("repeated, Release answers %v", err)
			}
			if ids := strings.Join(f.holders("k"), " "); strings.Contains(ids, old.ID()) {
				t.Error("the old lease is still there")
			}
			for _, rule := range f.rules { // what was left in a socket comes
				rule.Release()
			}
			time.Sleep(50 * time.Millisecond)
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
			c, proxy := f.behind(withRetries, mongolock.TTL(5*time.Second))
			a, _, err := handOver(t, f, c, proxy, lost)
			if err != nil {
				t.Errorf("Release answers %v", err)
			}
			f.rules[0].Release()
			f.mustHold(a.lease)
			f.release(a.lease)
		})
	}
}

func TestAHandOverThatIsRefusedIsAnOrdinaryRelease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(5*time.Second))
	a, _, err := handOver(t, f, c, proxy, faultproxy.Fail(13))
	if err != nil {
		t.Errorf("Release answers %v", err)
	}
	f.mustHold(a.lease)
	f.release(a.lease)
}

func TestAHandOverOfADeletedKeyReportsTheLossAndServesTheWaiter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.client(mongolock.TTL(20 * time.Second))
	l := f.acquire(c, "k")
	wait := f.inBackground(f.ctx(), c, "k")
	time.Sleep(50 * time.Millisecond)
	if _, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("Release answers %v", err)
	}
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
			l := f.acquire(f.client(mongolock.TTL(6*time.Second)), "k")
			ticket, err := l.Detach(f.ctx())
			if err != nil {
				t.Fatal(err)
			}
			other, proxy := f.behind(noRetries)
			f.on(proxy, handOverCommands.Next(1), c.lost)
			again, err := other.Resume(f.ctx(), ticket)
			mustBeUnknown(t, again, err)
			if !c.stays {
				f.mustBeGone("k", time.Now().Add(time.Second))
				if again, err = other.Resume(f.ctx(), ticket); again != nil || !errors.Is(err, mongolock.ErrLost) {
					t.Errorf("resumed once more: %v, %v", again, err)
				}
				return
			}
			f.until(time.Now().Add(3*time.Second), "resumed", func() bool {
				again, err = other.Resume(f.ctx(), ticket)
				return err == nil
			})
			if again.Token() != l.Token() {
				t.Errorf("token %d, was %d", again.Token(), l.Token())
			}
			f.mustHold(again)
			f.release(again)
		})
	}
}

func TestCloseWithoutTheServerIsBoundedAndNamesWhatItLeaves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(6*time.Second))
	l := f.acquire(c, "left behind")
	proxy.Silence()
	begin := time.Now()
	err := c.Close()
	f.within(600*time.Millisecond+releaseMost+slack, time.Since(begin), "Close")
	if err == nil || !strings.Contains(err.Error(), "left behind") {
		t.Errorf("Close answers %v", err)
	}
	if !errors.Is(l.Err(), mongolock.ErrClosed) {
		t.Errorf("the lease says %v", l.Err())
	}
	if _, err := c.Acquire(f.ctx(), "k"); !errors.Is(err, mongolock.ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
	f.granted(f.inBackground(f.ctx(), f.client(mongolock.TTL(5*time.Second)), "left behind"))
}

// lateRelease gives back a lease whose key was freed by hand and granted again.
func lateRelease(t *testing.T) (stays bool) {
	t.Helper()
	f := newFixture(t)
	c := f.client(mongolock.NoRenewal())
	l := f.acquire(c, "k")
	if _, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}); err != nil { // by hand
		t.Fatal(err)
	}
	next := f.acquire(f.client(mongolock.TTL(20*time.Second)), "k")
	if err := l.Release(); !knob.ReleaseByKey && !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("Release answers %v", err)
	}
	return f.document("k") != nil && next.Err() == nil
}

func TestAReleaseNeverFreesALaterHolder(t *testing.T) {
	t.Parallel()
	if !lateRelease(t) {
		t.Error("the later holder was freed")
	}
}
