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

func TestMongoRenewalsThatHangOrFailEndTheLeaseBeforeARivalIsGranted(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]func(r *mongoRoom, p *faultproxy.Proxy){
		"half-open":             func(r *mongoRoom, p *faultproxy.Proxy) { r.on(p, mongoRenewals, faultproxy.HalfOpen()) },
		"reply never comes":     func(r *mongoRoom, p *faultproxy.Proxy) { r.on(p, mongoRenewals.After(1), faultproxy.SwallowReply()) },
		"every packet is lost":  func(_ *mongoRoom, p *faultproxy.Proxy) { p.Silence() },
		"the server is gone":    func(_ *mongoRoom, p *faultproxy.Proxy) { p.Cut() },
		"not primary for ever":  func(r *mongoRoom, p *faultproxy.Proxy) { r.on(p, mongoRenewals, faultproxy.NotPrimary()) },
		"commands are dropped":  func(r *mongoRoom, p *faultproxy.Proxy) { r.on(p, mongoRenewals, faultproxy.DropCommand()) },
		"no right to any more":  func(r *mongoRoom, p *faultproxy.Proxy) { r.on(p, mongoRenewals, faultproxy.Fail(13)) },
		"write concern refused": func(r *mongoRoom, p *faultproxy.Proxy) { r.on(p, mongoRenewals, faultproxy.Fail(100)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t)
			c, proxy := r.behind(withRetries, mongolock.TTL(time.Second))
			l := r.acquire(c, "k")
			ctx := l.Context(r.ctx())
			done := endOf(l)
			cause(r, proxy)
			a := r.granted(r.inBackground(r.ctx(), r.client(mongolock.TTL(5*time.Second)), "k"))
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
			r.calm()
			r.until(time.Now().Add(3*time.Second), "Release reports the loss", func() bool { return errors.Is(l.Release(), mongolock.ErrLost) })
			r.mustHold(a.lease)
			r.release(a.lease)
		})
	}
}

func TestMongoRenewalsThatFailAndThenWorkLoseNothing(t *testing.T) {
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
				failsOnce(t, mongoRenewals, fault, "k")
			})
			t.Run("together", func(t *testing.T) {
				t.Parallel()
				failsOnce(t, mongoBulks, fault, "k", "j", "i")
			})
		})
	}
}

// failsOnce holds keys while one renewal of them, or one bulk, meets with a fault.
func failsOnce(t *testing.T, renewal faultproxy.Matcher, fault faultproxy.Action, keys ...string) {
	t.Helper()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries, mongolock.TTL(5*time.Second))
	var all []*mongolock.Lease
	for _, key := range keys {
		all = append(all, r.acquire(c, key))
	}
	rule := r.on(proxy, renewal.Next(1), fault)
	r.await(rule.Fired(), "a renewal")
	first := inside.Honoured(all[0])
	r.until(time.Now().Add(5*time.Second), "renewed or lost", func() bool {
		return all[0].Err() != nil || inside.Honoured(all[0]).After(first)
	})
	for _, l := range all {
		r.mustHold(l)
		r.release(l)
	}
}

func TestMongoAHelloLostAfterABulkCostsNothing(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries, mongolock.TTL(3*time.Second))
	one, two := r.acquire(c, "one"), r.acquire(c, "two")
	first := inside.Honoured(one)
	rule := r.on(proxy, faultproxy.Command("hello", "isMaster").Where(func(c bson.Raw) bool {
		db, _ := c.Lookup("$db").StringValueOK()
		return db != "admin" // the driver's own
	}).Next(1), faultproxy.DropReply())
	r.await(rule.Fired(), "the hello of a bulk")
	r.until(time.Now().Add(3*time.Second), "renewed", func() bool { return inside.Honoured(one).After(first) && inside.Honoured(two).After(first) })
	r.release(one)
	r.release(two)
}

func TestMongoARenewalAnsweredAfterTheDeadlineMovesNothing(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(withRetries, mongolock.TTL(time.Second))
	l := r.acquire(c, "k")
	rule := r.on(proxy, mongoRenewals, faultproxy.HoldReply()) // the server applied it
	r.await(l.Done(), "the end of the lease")
	rule.Release()
	time.Sleep(200 * time.Millisecond)
	if !errors.Is(l.Err(), mongolock.ErrLost) || l.Remaining() != 0 {
		t.Errorf("revived: %v, %v", l.Err(), l.Remaining())
	}
}

func TestMongoALateRenewalTouchesNobodyElses(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries, mongolock.TTL(time.Second))
	l := r.acquire(c, "k")
	rule := r.on(proxy, mongoRenewals, faultproxy.Orphan())
	r.await(rule.Fired(), "a renewal")
	r.on(proxy, mongoReleases.Next(1), faultproxy.DelayCommand(0))
	if err := l.Release(); err != nil && !errors.Is(err, mongolock.ErrLost) && !errors.Is(err, mongolock.ErrOutcomeUnknown) {
		t.Error(err)
	}
	next := r.acquire(r.client(mongolock.TTL(20*time.Second)), "k")
	before := r.document("k")
	rule.Release()
	r.await(rule.Applied(), "the late renewal's arrival")
	if after := r.document("k"); !bytes.Equal(before, after) {
		t.Errorf("the late renewal made\n%v\nof\n%v", after, before)
	}
	r.release(next)
}

func TestMongoAReleaseWhoseReplyIsLostFreesTheKey(t *testing.T) {
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
				r := newMongoRoom(t)
				c, proxy := r.behind(noRetries, mongolock.TTL(ttl))
				l := r.acquire(c, "k")
				rival := r.client()
				wait := r.inBackground(r.ctx(), rival, "k")
				r.waits(rival, "k")
				r.on(proxy, mongoReleases.Next(1), lost)
				freed := time.Now()
				err := l.Release()
				if err == nil || errors.Is(err, mongolock.ErrLost) || !errors.Is(err, mongolock.ErrOutcomeUnknown) {
					t.Errorf("Release answers %v", err)
				}
				if err := l.Err(); !errors.Is(err, mongolock.ErrReleased) {
					t.Errorf("the lease says %v", err)
				}
				a := r.granted(wait)
				r.within(time.Second+mongoPoll, a.when.Sub(freed), "another was granted")
				if err := l.Release(); err != nil {
					t.Errorf("repeated, it answers %v", err)
				}
				r.mustHold(a.lease)
				r.release(a.lease)
			}
		})
	}
}

func TestMongoAReleaseIsRetriedByTheDriverUnseen(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped": faultproxy.DropReply(), "interrupted": faultproxy.NotPrimaryReply(), "not primary": faultproxy.NotPrimary(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t, "retryable")
			c, proxy := r.behind(withRetries)
			l := r.acquire(c, "k")
			r.on(proxy, mongoReleases.Next(1), lost)
			r.release(l)
			r.mustBeAbsent("k")
		})
	}
}

func TestMongoAReleaseThatFailsGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries, mongolock.TTL(20*time.Second))
	l := r.acquire(c, "k")
	r.on(proxy, mongoReleases.Next(3), faultproxy.Fail(faultproxy.CodeNotWritablePrimary))
	if err := l.Release(); !errors.Is(err, mongolock.ErrOutcomeUnknown) {
		t.Errorf("Release answers %v", err)
	}
	r.mustBeGone("k", time.Now().Add(3*time.Second))
	r.until(time.Now().Add(time.Second), "settled", func() bool { return l.Release() == nil })
}

func TestMongoAReleaseThatHangsTakesAtMostFiveSeconds(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(withRetries, mongolock.TTL(20*time.Second))
	plain, handed := r.acquire(c, "plain"), r.acquire(c, "handed")
	wait := r.inBackground(r.ctx(), c, "handed")
	r.waits(c, "handed")
	r.on(proxy, mongoReleases, faultproxy.HalfOpen())
	r.on(proxy, mongoHandOver, faultproxy.HalfOpen())
	begin := time.Now()
	answers := make(chan error, 2)
	go func() { answers <- plain.Release() }()
	go func() { answers <- handed.Release() }()
	for range 2 {
		if err := <-answers; !errors.Is(err, mongolock.ErrOutcomeUnknown) {
			t.Errorf("Release answers %v", err)
		}
	}
	r.within(mongoReleaseMost+mongoSlack, time.Since(begin), "the call")
	if plain.Err() == nil || handed.Err() == nil {
		t.Error("the leases go on")
	}
	for _, rule := range r.rules {
		rule.Remove()
	}
	a := r.granted(wait)
	r.mustHold(a.lease)
	r.mustBeGone("plain", time.Now().Add(mongoReleaseMost+time.Second))
	r.release(a.lease)
}

// handOver is a release with a waiter of the same client in line, whose transfer
// something befalls. It answers the waiter's grant and Release's error.
func handOver(t *testing.T, r *mongoRoom, c *mongolock.Client, proxy *faultproxy.Proxy, fault faultproxy.Action) (a mongoAnswer, old *mongolock.Lease, err error) {
	t.Helper()
	old = r.acquire(c, "k")
	wait := r.inBackground(r.ctx(), c, "k")
	r.waits(c, "k")
	rule := r.on(proxy, mongoHandOver.Next(1), fault)
	err = old.Release()
	if rule.Hits() != 1 {
		t.Fatal("nothing was handed over: the test shows nothing")
	}
	a = r.granted(wait)
	return a, old, err
}

func TestMongoAHandOverWhoseReplyIsLostLeavesNeitherAndTheWaiterIsServed(t *testing.T) {
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
			r := newMongoRoom(t)
			c, proxy := r.behind(noRetries, mongolock.TTL(5*time.Second))
			begin := time.Now()
			a, old, err := handOver(t, r, c, proxy, lost)
			if !errors.Is(err, mongolock.ErrOutcomeUnknown) || errors.Is(err, mongolock.ErrLost) {
				t.Errorf("Release answers %v", err)
			}
			r.within(2*time.Second, a.when.Sub(begin), "the waiter was served")
			if a.lease.Token() <= old.Token() {
				t.Errorf("token %d after %d", a.lease.Token(), old.Token())
			}
			if err := old.Release(); err != nil {
				t.Errorf("repeated, Release answers %v", err)
			}
			if ids := strings.Join(r.holders("k"), " "); strings.Contains(ids, old.ID()) {
				t.Error("the old lease is still there")
			}
			for _, rule := range r.rules { // what was left in a socket comes
				rule.Release()
			}
			time.Sleep(50 * time.Millisecond)
			r.mustHold(a.lease)
			r.release(a.lease)
		})
	}
}

func TestMongoAHandOverIsRetriedByTheDriverUnseen(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped": faultproxy.DropReply(), "not primary": faultproxy.NotPrimary(), "left in a socket": faultproxy.Orphan(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t, "retryable")
			c, proxy := r.behind(withRetries, mongolock.TTL(5*time.Second))
			a, _, err := handOver(t, r, c, proxy, lost)
			if err != nil {
				t.Errorf("Release answers %v", err)
			}
			r.rules[0].Release()
			r.mustHold(a.lease)
			r.release(a.lease)
		})
	}
}

func TestMongoAHandOverThatIsRefusedIsAnOrdinaryRelease(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries, mongolock.TTL(5*time.Second))
	a, _, err := handOver(t, r, c, proxy, faultproxy.Fail(13))
	if err != nil {
		t.Errorf("Release answers %v", err)
	}
	r.mustHold(a.lease)
	r.release(a.lease)
}

func TestMongoAHandOverOfAKeyThatIsGoneReportsTheLossAndTheWaiterIsServed(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c := r.client(mongolock.TTL(20 * time.Second))
	l := r.acquire(c, "k")
	wait := r.inBackground(r.ctx(), c, "k")
	time.Sleep(50 * time.Millisecond)
	if _, err := r.coll.DeleteOne(r.ctx(), bson.D{{Key: "_id", Value: "k"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("Release answers %v", err)
	}
	a := r.granted(wait)
	r.mustHold(a.lease)
	r.release(a.lease)
}

func TestMongoATicketWhoseResumeIsLostStaysGoodOrIsTakenUp(t *testing.T) {
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
			r := newMongoRoom(t)
			l := r.acquire(r.client(mongolock.TTL(6*time.Second)), "k")
			ticket, err := l.Detach(r.ctx())
			if err != nil {
				t.Fatal(err)
			}
			other, proxy := r.behind(noRetries)
			r.on(proxy, mongoHandOver.Next(1), c.lost)
			again, err := other.Resume(r.ctx(), ticket)
			mustBeUnknown(t, again, err)
			if !c.stays {
				r.mustBeGone("k", time.Now().Add(time.Second))
				if again, err = other.Resume(r.ctx(), ticket); again != nil || !errors.Is(err, mongolock.ErrLost) {
					t.Errorf("resumed once more: %v, %v", again, err)
				}
				return
			}
			r.until(time.Now().Add(3*time.Second), "resumed", func() bool {
				again, err = other.Resume(r.ctx(), ticket)
				return err == nil
			})
			if again.Token() != l.Token() {
				t.Errorf("token %d, was %d", again.Token(), l.Token())
			}
			r.mustHold(again)
			r.release(again)
		})
	}
}

func TestMongoCloseIsBoundedAndNamesWhatItLeaves(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(withRetries, mongolock.TTL(6*time.Second))
	l := r.acquire(c, "left behind")
	proxy.Silence()
	begin := time.Now()
	err := c.Close()
	r.within(600*time.Millisecond+mongoReleaseMost+mongoSlack, time.Since(begin), "Close")
	if err == nil || !strings.Contains(err.Error(), "left behind") {
		t.Errorf("Close answers %v", err)
	}
	if !errors.Is(l.Err(), mongolock.ErrClosed) {
		t.Errorf("the lease says %v", l.Err())
	}
	if _, err := c.Acquire(r.ctx(), "k"); !errors.Is(err, mongolock.ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
	r.granted(r.inBackground(r.ctx(), r.client(mongolock.TTL(5*time.Second)), "left behind"))
}

// lateRelease gives back a lease whose key was freed by hand and granted again.
func lateRelease(t *testing.T) (stays bool) {
	t.Helper()
	r := newMongoRoom(t)
	c := r.client(mongolock.NoRenewal())
	l := r.acquire(c, "k")
	if _, err := r.coll.DeleteOne(r.ctx(), bson.D{{Key: "_id", Value: "k"}}); err != nil { // by hand
		t.Fatal(err)
	}
	next := r.acquire(r.client(mongolock.TTL(20*time.Second)), "k")
	if err := l.Release(); !knob.ReleaseByKey && !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("Release answers %v", err)
	}
	return r.document("k") != nil && next.Err() == nil
}

func TestMongoAReleaseNeverFreesALaterHolder(t *testing.T) {
	t.Parallel()
	if !lateRelease(t) {
		t.Error("the later holder was freed")
	}
}
