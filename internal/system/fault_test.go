package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/store"
	"github.com/stretchr/testify/require"
)

// mustBeUnknown fails unless err says that a claim's outcome is being cleaned up,
// and no lease came with it.
func mustBeUnknown(t *testing.T, l *mongolock.Lease, err error) {
	t.Helper()
	if l != nil || !errors.Is(err, mongolock.ErrOutcomeUnknown) || errors.Is(err, mongolock.ErrHeld) {
		t.Fatalf("answered %v, %v: neither granted nor unknown", l, err)
	}
}

func TestMongoAGrantWhoseReplyIsLostOnceIsTheCallersByTheDriversRetry(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped":                 faultproxy.DropReply(),
		"reply reset":                   faultproxy.ResetReply(),
		"interrupted by a step-down":    faultproxy.NotPrimaryReply(),
		"write concern error":           faultproxy.WriteConcernError(faultproxy.CodeShutdownInProgress),
		"command dropped":               faultproxy.DropCommand(),
		"command answered not primary":  faultproxy.NotPrimary(),
		"command left in a socket":      faultproxy.Orphan(),
		"command left while stepped up": faultproxy.Fail(faultproxy.CodePrimarySteppedDown),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t, "retryable")
			c, proxy := r.behind(withRetries, mongolock.TTL(10*time.Second))
			rule := r.on(proxy, mongoClaims.Nth(1), lost)
			l := r.acquire(c, "k")
			if proxy.Count("findAndModify") < 2 {
				t.Fatal("there was no retry: the test shows nothing")
			}
			r.mustHold(l)
			rule.Release() // a twin left in a socket comes now
			if err := l.Renew(r.ctx()); err != nil {
				t.Error(err)
			}
			if _, err := r.client().TryAcquire(r.ctx(), "k"); !errors.Is(err, mongolock.ErrHeld) {
				t.Errorf("another got %v", err)
			}
			r.release(l)
			r.mustBeAbsent("k")
		})
	}
}

func TestMongoAfterAnUnknownClaimTheKeyIsFreeWithinASecond(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped":                faultproxy.DropReply(),
		"reply reset":                  faultproxy.ResetReply(),
		"interrupted by a step-down":   faultproxy.NotPrimaryReply(),
		"write concern error":          faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout),
		"unsatisfiable write concern":  faultproxy.WriteConcernError(faultproxy.CodeUnsatisfiableWriteConcern),
		"command dropped":              faultproxy.DropCommand(),
		"command reset":                faultproxy.Reset(),
		"command answered not primary": faultproxy.NotPrimary(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, how := range []string{"Acquire", "TryAcquire"} {
				r := newMongoRoom(t)
				c, proxy := r.behind(noRetries, mongolock.TTL(2*time.Second))
				rule := r.on(proxy, mongoClaims.Nth(1), lost)
				l, err := map[string]func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error){
					"Acquire": c.Acquire, "TryAcquire": c.TryAcquire,
				}[how](r.ctx(), "k")
				failed := time.Now()
				mustBeUnknown(t, l, err)
				if rule.Hits() != 1 {
					t.Fatal("nothing was lost: the test shows nothing")
				}
				r.mustBeGone("k", failed.Add(time.Second))
				r.release(r.acquire(r.client(), "k"))
			}
		})
	}
}

func TestMongoWhenEveryReplyIsLostTheKeyIsFreeWithinASecondOfTheError(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(withRetries, mongolock.TTL(1500*time.Millisecond))
	// The driver repeats a numbered write until its time is up.
	r.on(proxy, mongoClaims, faultproxy.DropReply())
	begin := time.Now()
	l, err := c.Acquire(r.ctx(), "k")
	failed := time.Now()
	mustBeUnknown(t, l, err)
	r.within(1500*time.Millisecond+mongoSlack, failed.Sub(begin), "the call")
	r.mustBeGone("k", failed.Add(time.Second))
}

func TestMongoACleanUpIsRepeatedUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries, mongolock.TTL(5*time.Second))
	r.on(proxy, mongoClaims.Nth(1), faultproxy.DropReply())
	lost := r.on(proxy, mongoUndoes.Next(3), faultproxy.Fail(faultproxy.CodeNotWritablePrimary))
	l, err := c.TryAcquire(r.ctx(), "k")
	mustBeUnknown(t, l, err)
	r.mustBeGone("k", time.Now().Add(2*time.Second))
	if lost.Hits() != 3 {
		t.Errorf("%d clean-ups were refused", lost.Hits())
	}
}

// lateClaim leaves a claim in a socket until its caller gave up and it was cleaned
// up; then a rival may do something, and the claim arrives.
func lateClaim(t *testing.T, r *mongoRoom, c *mongolock.Client, proxy *faultproxy.Proxy, meanwhile func()) {
	t.Helper()
	stuck := r.on(proxy, mongoClaims.Nth(1), faultproxy.Orphan())
	r.on(proxy, mongoClaims.After(1), faultproxy.DropCommand())
	l, err := c.TryAcquire(r.ctx(), "k")
	mustBeUnknown(t, l, err)
	if testserver.Has("retryable") {
		r.cleanedUp(c)
	}
	meanwhile()
	stuck.Release()
	r.await(stuck.Applied(), "the late claim's arrival")
}

func TestMongoAClaimThatArrivesAfterItsCleanUpIsRefused(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t, "retryable")
	c, proxy := r.behind(withRetries, mongolock.TTL(time.Second))
	lateClaim(t, r, c, proxy, func() {})
	r.mustBeAbsent("k")
}

func TestMongoAClaimThatArrivesAfterItsCleanUpTouchesNobodyElses(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(withRetries, mongolock.TTL(time.Second))
	rival := r.client(mongolock.TTL(20 * time.Second))
	var l *mongolock.Lease
	var before bson.Raw
	lateClaim(t, r, c, proxy, func() { l, before = r.acquire(rival, "k"), r.document("k") })
	if after := r.document("k"); !bytes.Equal(before, after) {
		t.Errorf("the late claim made\n%v\nof\n%v", after, before)
	}
	r.mustHold(l)
}

func TestMongoWithoutNumbersALateClaimIsCleanedUpWhenItComes(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries, mongolock.TTL(3*time.Second))
	begin := time.Now()
	lateClaim(t, r, c, proxy, func() { time.Sleep(400 * time.Millisecond) })
	// The pauses between clean-ups double: the next comes after as long again.
	r.mustBeGone("k", time.Now().Add(time.Since(begin)+mongoSlack))
}

func TestMongoACancelAnswersAtOnceAndTheGrantGoesBack(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]faultproxy.Action{
		"not applied yet": faultproxy.Hold(),
		"applied":         faultproxy.HoldReply(),
	} {
		for _, how := range []string{"Acquire", "TryAcquire"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				r := newMongoRoom(t)
				c, proxy := r.behind(withRetries, mongolock.TTL(10*time.Second))
				rule := r.on(proxy, mongoClaims, held)
				ctx, cancel := context.WithCancel(r.ctx())
				answer := make(chan mongoAnswer, 1)
				go func() {
					acquire := c.Acquire
					if how == "TryAcquire" {
						acquire = c.TryAcquire
					}
					l, err := acquire(ctx, "k")
					answer <- mongoAnswer{l, err, time.Now()}
				}()
				r.await(rule.Fired(), "the claim")
				cancelled := time.Now()
				cancel()
				a := <-answer
				r.within(100*time.Millisecond, a.when.Sub(cancelled), "the error came")
				if a.lease != nil || !errors.Is(a.err, context.Canceled) || errors.Is(a.err, mongolock.ErrOutcomeUnknown) {
					t.Errorf("answered %v, %v", a.lease, a.err)
				}
				rule.Release()
				r.await(rule.Applied(), "the claim's reply")
				r.mustBeGone("k", time.Now().Add(mongoSlack))
				r.release(r.acquire(r.client(), "k"))
			})
		}
	}
}

func TestMongoACancelledClaimWhoseReplyIsLostIsCleanedUp(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries, mongolock.TTL(10*time.Second))
	rule := r.on(proxy, mongoClaims, faultproxy.HoldReply(), faultproxy.DropReply())
	ctx, cancel := context.WithCancel(r.ctx())
	answer := r.inBackground(ctx, c, "k")
	r.await(rule.Fired(), "the claim")
	cancel()
	if a := <-answer; !errors.Is(a.err, context.Canceled) {
		t.Error(a.err)
	}
	rule.Release()
	r.mustBeGone("k", time.Now().Add(time.Second))
}

func TestMongoAClaimThatHangsForEverIsOverWithItsTTL(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]faultproxy.Action{
		"half-open": faultproxy.HalfOpen(),
		"applied":   faultproxy.SwallowReply(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, retries := range []mongoRetrying{withRetries, noRetries} {
				r := newMongoRoom(t)
				c, proxy := r.behind(retries, mongolock.TTL(time.Second))
				r.on(proxy, mongoClaims, hang)
				begin := time.Now()
				l, err := c.Acquire(r.ctx(), "k")
				mustBeUnknown(t, l, err)
				r.within(time.Second+mongoSlack, time.Since(begin), fmt.Sprint(retries))
				r.mustBeGone("k", time.Now().Add(time.Second))
			}
		})
	}
}

func TestMongoAGrantThatComesAfterItsLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(withRetries, mongolock.TTL(600*time.Millisecond))
	r.on(proxy, mongoClaims.Nth(1), faultproxy.DelayReply(580*time.Millisecond)) // beyond the margin
	l, err := c.TryAcquire(r.ctx(), "k")
	mustBeUnknown(t, l, err)
	r.mustBeGone("k", time.Now().Add(time.Second))
}

func TestMongoASlowGrantIsTrustedFromWhenItWasSent(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(withRetries, mongolock.TTL(3*time.Second), mongolock.NoRenewal())
	r.on(proxy, mongoClaims.Nth(1), faultproxy.DelayReply(time.Second))
	sent := time.Now()
	l := r.acquire(c, "k")
	if end := time.Now().Add(l.Remaining()); end.After(sent.Add(3*time.Second + 50*time.Millisecond)) {
		t.Errorf("trusted for %v after it was sent", end.Sub(sent))
	}
	r.release(l)
}

// A takeover goes two ways. If the key's end has passed it is the upsert that
// replaces the holder; if only the holders' ends have, compare-and-swap.
func TestMongoATakeoverWhoseReplyIsLostFreesTheKey(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		matcher faultproxy.Matcher
		last    time.Duration // the key's end
	}{
		{"upsert", mongoClaims, -time.Second},
		{"compare-and-swap", mongoSwaps, time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, retries := range []mongoRetrying{withRetries, noRetries} {
				r := newMongoRoom(t)
				c, proxy := r.behind(retries, mongolock.TTL(time.Second))
				r.plantDead("k", row.last)
				rule := r.on(proxy, row.matcher, faultproxy.DropReply())
				l, err := c.Acquire(r.ctx(), "k")
				failed := time.Now()
				mustBeUnknown(t, l, err)
				if rule.Hits() == 0 {
					t.Fatal("nothing was lost: the test shows nothing")
				}
				r.mustBeGone("k", failed.Add(time.Second))
			}
		})
	}
}

// plantDead stores a key whose only holder has run out, with the key's own end
// so far from now.
func (r *mongoRoom) plantDead(key string, last time.Duration) {
	r.t.Helper()
	past := time.Now().Add(-time.Second)
	_, err := r.coll.InsertOne(r.ctx(), bson.D{
		{Key: "_id", Value: key}, {Key: fieldMark, Value: 1}, {Key: fieldMode, Value: string(store.Exclusive)}, {Key: fieldLimit, Value: 1},
		{Key: fieldHolders, Value: bson.D{{Key: "DEAD", Value: bson.D{
			{Key: fieldOwner, Value: "nobody"}, {Key: fieldNote, Value: ""}, {Key: fieldSince, Value: past.Add(-time.Second)}, {Key: fieldExpireAt, Value: past},
		}}}},
		{Key: fieldExpireAt, Value: time.Now().Add(last)}, {Key: fieldRev, Value: bson.NewObjectID()}, {Key: fieldAt, Value: past},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestMongoAFaultBesideARefusedClaimLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]faultproxy.Matcher{"word": mongoWords, "look": faultproxy.Command("find")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t)
			holder := r.acquire(r.client(mongolock.TTL(20*time.Second)), "k")
			c, proxy := r.behind(noRetries, mongolock.TTL(time.Second))
			acquire := c.Acquire
			if name == "look" {
				acquire = c.TryAcquire
			}
			r.on(proxy, m, faultproxy.DropReply())
			l, err := acquire(r.ctx(), "k")
			if l != nil || err == nil || errors.Is(err, mongolock.ErrOutcomeUnknown) || errors.Is(err, mongolock.ErrHeld) {
				t.Errorf("answered %v, %v", l, err)
			}
			r.mustHold(holder)
			r.release(holder)
			r.mustBeAbsent("k")
		})
	}
}

func TestMongoAWaiterRidesOutFaultsAndIsServed(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	holder := r.acquire(r.client(mongolock.TTL(20*time.Second)), "k")
	c, proxy := r.behind(noRetries, mongolock.TTL(2*time.Second))
	wait := r.inBackground(r.ctx(), c, "k")
	r.waits(c, "k")
	proxy.Cut()
	time.Sleep(500 * time.Millisecond)
	r.release(holder)
	proxy.Restore()
	a := r.granted(wait)
	r.mustHold(a.lease)
}

func TestMongoAWaitersClaimWhoseReplyIsLostIsCleanedUpAndItIsServed(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped": faultproxy.DropReply(), "not primary": faultproxy.NotPrimary(),
		"write concern error": faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t)
			holder := r.acquire(r.client(mongolock.TTL(20*time.Second)), "k")
			c, proxy := r.behind(noRetries, mongolock.TTL(3*time.Second))
			wait := r.inBackground(r.ctx(), c, "k")
			r.waits(c, "k")
			rule := r.on(proxy, mongoClaims.Nth(1), lost)
			r.release(holder)
			freed := time.Now()
			a := r.granted(wait)
			if rule.Hits() != 1 {
				t.Fatal("nothing was lost: the test shows nothing")
			}
			r.within(3*time.Second, a.when.Sub(freed), "served")
			r.mustHold(a.lease)
		})
	}
}

func TestMongoAServerOutOfReachIsACertainFailure(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	proxy := faultproxy.New(t, r.uri)
	proxy.Cut()
	c := r.clientOn(r.connect(proxy.URI()), mongolock.TTL(500*time.Millisecond))
	for _, acquire := range []func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error){c.Acquire, c.TryAcquire} {
		l, err := acquire(r.ctx(), "k")
		if l != nil || err == nil || errors.Is(err, mongolock.ErrOutcomeUnknown) {
			t.Errorf("answered %v, %v", l, err)
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := c.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	r.within(200*time.Millisecond+mongoSlack, time.Since(begin), "the call")
	proxy.Restore()
	r.until(time.Now().Add(5*time.Second), "it works without a new client", func() bool {
		l, err := c.TryAcquire(r.ctx(), "k")
		return err == nil && l.Release() == nil
	})
}

func TestMongoAServersClockAnHourOffChangesNothing(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			r := newMongoRoom(t)
			proxy := faultproxy.New(t, r.uri)
			r.proxies = append(r.proxies, proxy)
			proxy.ShiftClock(off)
			one, two := r.through(proxy, withRetries, mongolock.TTL(ttl)), r.through(proxy, withRetries, mongolock.TTL(ttl))
			l := r.acquire(one, "k")
			seen, err := one.Inspect(r.ctx(), "k")
			require.NoError(t, err)
			if at := time.Until(seen.Holders[0].Since); (at - off).Abs() > time.Minute {
				t.Fatalf("the server's clock is %v off: the test shows nothing", at)
			}
			if l.Remaining() > ttl {
				t.Errorf("trusted for %v", l.Remaining())
			}
			wait := r.inBackground(r.ctx(), two, "k")
			time.Sleep(ttl + ttl/4) // renewed
			if l.Err() != nil || len(wait) != 0 {
				t.Errorf("held by %v, and by another: %v", l.Err(), len(wait) != 0)
			}
			if _, err := two.TryAcquire(r.ctx(), "k"); !errors.Is(err, mongolock.ErrHeld) {
				t.Errorf("another got %v", err)
			}
			r.release(l)
			next := r.granted(wait).lease
			if next.Token() <= l.Token() {
				t.Errorf("token %d after %d", next.Token(), l.Token())
			}
			r.release(next)
			r.expiresInTime(one, two, ttl)
		})
	}
}

// expiresInTime fails unless a lease that is not renewed is another's soon after
// its end, and not before.
func (r *mongoRoom) expiresInTime(one, two *mongolock.Client, ttl time.Duration) {
	r.t.Helper()
	sent := time.Now()
	l := r.acquire(one, "k", mongolock.NoRenewal())
	done := make(chan time.Time, 1)
	go func() { <-l.Done(); done <- time.Now() }()
	honoured := inside.Honoured(l)
	a := r.granted(r.inBackground(r.ctx(), two, "k"))
	ended := <-done
	if a.when.Before(honoured) || a.when.Before(ended) {
		r.t.Errorf("granted %v before the store's word ends, %v before the holder knew", honoured.Sub(a.when), ended.Sub(a.when))
	}
	// The holder gives it back a margin after its end, at the latest it runs out.
	r.within(ttl+mongoSlack+mongoPoll, a.when.Sub(sent), "granted")
	if !errors.Is(l.Err(), mongolock.ErrLost) {
		r.t.Errorf("it ended with %v", l.Err())
	}
	r.release(a.lease)
}

// asleep makes a client's machine be suspended for a while, which its clock does
// not notice: what the server says is suddenly later.
func asleep(t *testing.T, suspended time.Duration) (believed time.Duration, taken bool) {
	t.Helper()
	const ttl = 20 * time.Second
	r := newMongoRoom(t)
	c, proxy := r.behind(withRetries, mongolock.TTL(ttl), mongolock.NoRenewal())
	proxy.ShiftClock(suspended)
	l, err := c.TryAcquire(r.ctx(), "k")
	if err != nil { // by now it knows the time again
		mustBeUnknown(t, l, err)
		r.release(r.acquire(c, "k"))
		return 0, false
	}
	believed = l.Remaining()
	status, err := r.client().Inspect(r.ctx(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if over := believed - status.Left(); over > 0 {
		t.Logf("believed for %v, honoured for %v", believed, status.Left())
		return believed, true
	}
	r.release(l)
	return believed, false
}

func TestMongoAMachineThatWasSuspendedTrustsNoLongerThanTheServerHonours(t *testing.T) {
	t.Parallel()
	// Beyond its TTL its claim is over before it is answered, and given back.
	for suspended, least := range map[time.Duration]time.Duration{15 * time.Second: 10 * time.Second, 10 * time.Minute: 0} {
		if believed, taken := asleep(t, suspended); taken || believed < least {
			t.Errorf("suspended for %v: believed for %v, taken by others: %v", suspended, believed, taken)
		}
	}
}

func TestMongoWithoutOperationTimeTokensStillRise(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string][]faultproxy.Action{
		"no operationTime": {faultproxy.RemoveOperationTime()},
		"no $clusterTime":  {faultproxy.RemoveClusterTime()},
		"neither":          {faultproxy.RemoveOperationTime(), faultproxy.RemoveClusterTime()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t)
			proxy := faultproxy.New(t, r.uri)
			r.proxies = append(r.proxies, proxy)
			r.on(proxy, faultproxy.Command(), missing...)
			confirms := r.on(proxy, mongoConfirms, faultproxy.DelayCommand(0))
			clients := []*mongolock.Client{r.through(proxy, withRetries, mongolock.TTL(5*time.Second)), r.through(proxy, withRetries, mongolock.TTL(5*time.Second))}
			var last int64
			for i := range 3 {
				l := r.acquire(clients[i%2], "k")
				if l.Token() <= last {
					t.Errorf("token %d after %d", l.Token(), last)
				}
				last = l.Token()
				if i == 1 { // by hand
					if _, err := r.coll.DeleteOne(r.ctx(), bson.D{{Key: "_id", Value: "k"}}); err != nil {
						t.Fatal(err)
					}
				}
				_ = l.Release()
				time.Sleep(time.Second) // the timestamps of some servers count seconds
			}
			if confirms.Hits() != 3 {
				t.Errorf("%d confirmations of 3 grants", confirms.Hits())
			}
		})
	}
}

func TestMongoAGrantThatCannotBeConfirmedIsCleanedUp(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"command dropped": faultproxy.DropCommand(), "reply dropped": faultproxy.DropReply(), "refused": faultproxy.Fail(13),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t)
			c, proxy := r.behind(noRetries, mongolock.TTL(3*time.Second))
			r.on(proxy, faultproxy.Command(), faultproxy.RemoveOperationTime())
			r.on(proxy, mongoConfirms, lost)
			l, err := c.TryAcquire(r.ctx(), "k")
			mustBeUnknown(t, l, err)
			r.mustBeGone("k", time.Now().Add(time.Second))
		})
	}
}

func TestMongoNeverNilAndNilWhateverTheServerAnswers(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries, mongolock.TTL(time.Second))
	for i, odd := range []bson.D{
		{{Key: "ok", Value: 1}, {Key: "value", Value: bson.D{}}},
		{{Key: "ok", Value: 1}, {Key: "value", Value: bson.D{{Key: fieldMark, Value: 1}}}},
		{{Key: "ok", Value: 0}},
		{},
	} {
		key := fmt.Sprint("k", i)
		rule := r.on(proxy, mongoClaims, faultproxy.EditReply(func(bson.D) bson.D { return slices.Clone(odd) }))
		l, err := c.TryAcquire(r.ctx(), key)
		mustBeUnknown(t, l, err)
		rule.Remove()
		r.mustBeGone(key, time.Now().Add(time.Second))
	}
}

// No document in the answer of an upsert says nothing of it.
func TestMongoAClaimAnsweredWithNoDocumentIsAskedFor(t *testing.T) {
	t.Parallel()
	withoutValue := func(reply bson.D) bson.D { // the rest stays, its operationTime too
		return slices.DeleteFunc(reply, func(e bson.E) bool { return e.Key == "value" })
	}
	for name, edit := range map[string]func(bson.D) bson.D{
		"null":    func(reply bson.D) bson.D { return append(withoutValue(reply), bson.E{Key: "value", Value: nil}) },
		"nothing": withoutValue,
		"no time": func(bson.D) bson.D { return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: nil}} },
	} {
		for _, opts := range [][]mongolock.AcquireOption{nil, {mongolock.Shared()}} {
			t.Run(fmt.Sprint(name, len(opts)), func(t *testing.T) {
				t.Parallel()
				r := newMongoRoom(t)
				c, proxy := r.behind(withRetries, mongolock.TTL(5*time.Second))
				first := r.acquire(c, "k")
				r.release(first)
				confirms := r.on(proxy, mongoConfirms, faultproxy.DelayCommand(0))
				r.on(proxy, mongoClaims.Nth(1), faultproxy.EditReply(edit))
				l := r.acquire(c, "k", opts...)
				if confirms.Hits() != 1 {
					t.Fatalf("%d confirmations", confirms.Hits())
				}
				if l.Token() <= first.Token() {
					t.Errorf("token %d after %d", l.Token(), first.Token())
				}
				r.mustHold(l)
				r.release(l)
				r.mustBeAbsent("k")
			})
		}
	}
}

func TestMongoAClaimAnsweredWithNoDocumentThatHasLeftNoneIsUnknown(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(noRetries)
	r.on(proxy, mongoClaims, faultproxy.EditReply(func(bson.D) bson.D {
		if _, err := r.coll.DeleteOne(r.ctx(), bson.D{{Key: "_id", Value: "k"}}); err != nil {
			t.Error(err)
		}
		return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: nil}}
	}))
	l, err := c.TryAcquire(r.ctx(), "k")
	mustBeUnknown(t, l, err)
	r.mustBeAbsent("k")
}
