package system

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
	"github.com/mongolock/mongolock/store"
)

// mustBeUnknown fails unless err says that the outcome of a claim is unknown, and no lease
// came with it.
func mustBeUnknown(t *testing.T, l *mongolock.Lease, err error) {
	t.Helper()
	require.Nil(t, l, "answered %v, %v: neither granted nor unknown", l, err)
	require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown, "neither granted nor unknown")
	require.NotErrorIs(t, err, mongolock.ErrHeld, "neither granted nor unknown")
}

func TestTheDriversRetryDeliversAGrantWhoseReplyWasLost(t *testing.T) {
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
			f := newFixture(t, "retryable")
			c, proxy := f.behind(withRetries, mongolock.TTL(10*time.Second))
			rule := f.on(proxy, claimCommands.Nth(1), lost)
			l := f.acquire(c, "k")
			require.GreaterOrEqual(t, proxy.Count("findAndModify"), 2, "there was no retry: the test shows nothing")
			f.mustHold(l)
			rule.Release() // a twin left in a socket arrives now
			assert.NoError(t, l.Renew(f.ctx()))
			_, err := f.client().TryAcquire(f.ctx(), "k")
			assert.ErrorIs(t, err, mongolock.ErrHeld, "another")
			f.release(l)
			f.mustBeAbsent("k")
		})
	}
}

func TestAfterAnUnknownClaimTheKeyIsFreeWithinASecond(t *testing.T) {
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
				f := newFixture(t)
				c, proxy := f.behind(noRetries, mongolock.TTL(2*time.Second))
				rule := f.on(proxy, claimCommands.Nth(1), lost)
				l, err := map[string]func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error){
					"Acquire": c.Acquire, "TryAcquire": c.TryAcquire,
				}[how](f.ctx(), "k")
				failed := time.Now()
				mustBeUnknown(t, l, err)
				require.Equal(t, 1, rule.Hits(), "nothing was lost: the test shows nothing")
				f.mustBeGone("k", failed.Add(time.Second))
				f.release(f.acquire(f.client(), "k"))
			}
		})
	}
}

func TestWhenEveryReplyIsLostTheKeyIsFreeWithinASecondOfTheError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(1500*time.Millisecond))
	// The driver repeats a numbered write until its time is up.
	f.on(proxy, claimCommands, faultproxy.DropReply())
	begin := time.Now()
	l, err := c.Acquire(f.ctx(), "k")
	failed := time.Now()
	mustBeUnknown(t, l, err)
	f.within(1500*time.Millisecond+slack, failed.Sub(begin), "the call")
	f.mustBeGone("k", failed.Add(time.Second))
}

func TestACleanUpIsRepeatedUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(5*time.Second))
	f.on(proxy, claimCommands.Nth(1), faultproxy.DropReply())
	lost := f.on(proxy, undoCommands.Next(3), faultproxy.Fail(faultproxy.CodeNotWritablePrimary))
	l, err := c.TryAcquire(f.ctx(), "k")
	mustBeUnknown(t, l, err)
	f.mustBeGone("k", time.Now().Add(2*time.Second))
	assert.Equal(t, 3, lost.Hits(), "refused clean-ups")
}

// lateClaim leaves a claim in a socket until its caller has given up and it was cleaned up.
// Then meanwhile runs, and the claim arrives.
func lateClaim(t *testing.T, f *fixture, c *mongolock.Client, proxy *faultproxy.Proxy, retries retrying, meanwhile func()) {
	t.Helper()
	stuck := f.on(proxy, claimCommands.Nth(1), faultproxy.Orphan())
	f.on(proxy, claimCommands.After(1), faultproxy.DropCommand())
	l, err := c.TryAcquire(f.ctx(), "k")
	mustBeUnknown(t, l, err)
	if bool(retries) && testserver.Has("retryable") { // else the clean-up goes on until the claim has run out
		f.cleanedUp(c)
	}
	meanwhile()
	stuck.Release()
	f.await(stuck.Applied(), "the late claim's arrival")
}

func TestAClaimThatArrivesAfterItsCleanUpIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "retryable")
	c, proxy := f.behind(withRetries, mongolock.TTL(time.Second))
	lateClaim(t, f, c, proxy, withRetries, func() {})
	f.mustBeAbsent("k")
}

func TestAClaimThatArrivesAfterItsCleanUpLeavesTheNextHolderAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(time.Second))
	rival := f.client(mongolock.TTL(20 * time.Second))
	var l *mongolock.Lease
	var before bson.Raw
	lateClaim(t, f, c, proxy, withRetries, func() { l, before = f.acquire(rival, "k"), f.document("k") })
	after := f.document("k")
	assert.True(t, bytes.Equal(before, after), "the late claim made\n%v\nof\n%v", after, before)
	f.mustHold(l)
}

func TestWithoutRetryableWritesALateClaimIsCleanedUpWhenItArrives(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(3*time.Second))
	begin := time.Now()
	lateClaim(t, f, c, proxy, noRetries, func() { time.Sleep(400 * time.Millisecond) }) // real: the claim arrives that much late
	// The pauses between clean-ups double: the next comes after as long again.
	f.mustBeGone("k", time.Now().Add(time.Since(begin)+slack))
}

func TestACancelAnswersAtOnceAndTheGrantGoesBack(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]faultproxy.Action{
		"not applied yet": faultproxy.Hold(),
		"applied":         faultproxy.HoldReply(),
	} {
		for _, how := range []string{"Acquire", "TryAcquire"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				c, proxy := f.behind(withRetries, mongolock.TTL(10*time.Second))
				rule := f.on(proxy, claimCommands, held)
				ctx, cancel := context.WithCancel(f.ctx())
				answer := make(chan outcome, 1)
				go func() {
					acquire := c.Acquire
					if how == "TryAcquire" {
						acquire = c.TryAcquire
					}
					l, err := acquire(ctx, "k")
					answer <- outcome{l, err, time.Now()}
				}()
				f.await(rule.Fired(), "the claim")
				cancelled := time.Now()
				cancel()
				a := <-answer
				f.within(100*time.Millisecond, a.when.Sub(cancelled), "the error came")
				assert.Nil(t, a.lease, "answered %v, %v", a.lease, a.err)
				assert.ErrorIs(t, a.err, context.Canceled)
				assert.NotErrorIs(t, a.err, mongolock.ErrOutcomeUnknown)
				rule.Release()
				f.await(rule.Applied(), "the claim's reply")
				f.mustBeGone("k", time.Now().Add(slack))
				f.release(f.acquire(f.client(), "k"))
			})
		}
	}
}

func TestACancelledClaimWhoseReplyIsLostIsCleanedUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(10*time.Second))
	rule := f.on(proxy, claimCommands, faultproxy.HoldReply(), faultproxy.DropReply())
	ctx, cancel := context.WithCancel(f.ctx())
	answer := f.inBackground(ctx, c, "k")
	f.await(rule.Fired(), "the claim")
	cancel()
	assert.ErrorIs(t, (<-answer).err, context.Canceled)
	rule.Release()
	f.mustBeGone("k", time.Now().Add(time.Second))
}

func TestAClaimThatHangsFailsWithinItsTTL(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]faultproxy.Action{
		"half-open": faultproxy.HalfOpen(),
		"applied":   faultproxy.SwallowReply(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, retries := range []retrying{withRetries, noRetries} {
				f := newFixture(t)
				c, proxy := f.behind(retries, mongolock.TTL(time.Second))
				f.on(proxy, claimCommands, hang)
				begin := time.Now()
				l, err := c.Acquire(f.ctx(), "k")
				mustBeUnknown(t, l, err)
				f.within(time.Second+slack, time.Since(begin), fmt.Sprint(retries))
				f.mustBeGone("k", time.Now().Add(time.Second))
			}
		})
	}
}

func TestAGrantThatComesAfterItsLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(600*time.Millisecond))
	f.on(proxy, claimCommands.Nth(1), faultproxy.DelayReply(580*time.Millisecond)) // beyond the margin
	l, err := c.TryAcquire(f.ctx(), "k")
	mustBeUnknown(t, l, err)
	f.mustBeGone("k", time.Now().Add(time.Second))
}

func TestASlowGrantIsTrustedFromWhenItWasSent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ttl := pace.Of(3 * time.Second)
	c, proxy := f.behind(withRetries, mongolock.TTL(ttl), mongolock.NoRenewal())
	// The reply is held from when it is here until a second later.
	held := f.on(proxy, claimCommands.Nth(1), faultproxy.HoldReply())
	applied := make(chan time.Time, 1)
	go func() {
		<-held.Fired()
		applied <- time.Now()
		time.Sleep(time.Second) // real: the reply is late by that
		held.Release()
	}()
	l := f.acquire(c, "k")
	end, at := time.Now().Add(l.Remaining()), <-applied
	assert.False(t, end.After(at.Add(ttl)), "trusted until %v after it was applied", end.Sub(at))
	f.release(l)
}

// A key is taken over in one of two ways. If the key's own end has passed, the upsert replaces
// its holder. If only its holders' ends have passed, a compare-and-swap does.
func TestATakeoverWhoseReplyIsLostFreesTheKey(t *testing.T) {
	t.Parallel()
	for _, retries := range []retrying{withRetries, noRetries} {
		f := newFixture(t)
		c, proxy := f.behind(retries, mongolock.TTL(time.Second))
		f.insertExpired("k", time.Minute)
		rule := f.on(proxy, swapCommands, faultproxy.DropReply())
		l, err := c.Acquire(f.ctx(), "k")
		failed := time.Now()
		mustBeUnknown(t, l, err)
		require.NotZero(t, rule.Hits(), "nothing was lost: the test shows nothing")
		f.mustBeGone("k", failed.Add(pace.Of(time.Second)))
	}
}

// insertExpired stores a key whose only holder ran out long ago. The key's own end is last
// from now.
func (f *fixture) insertExpired(key string, last time.Duration) {
	f.t.Helper()
	past := time.Now().Add(-2 * time.Minute) // by any primary's clock
	_, err := f.coll.InsertOne(f.ctx(), bson.D{
		{Key: "_id", Value: key}, {Key: fieldMark, Value: 1}, {Key: fieldMode, Value: string(store.Exclusive)}, {Key: fieldLimit, Value: 1},
		{Key: fieldHolders, Value: bson.D{{Key: "DEAD", Value: bson.D{
			{Key: fieldOwner, Value: "nobody"}, {Key: fieldNote, Value: ""}, {Key: fieldSince, Value: past.Add(-time.Second)}, {Key: fieldExpireAt, Value: past},
			{Key: "ttl", Value: 1000}, {Key: "beat", Value: int64(1)}, {Key: "epoch", Value: bson.NilObjectID},
		}}}},
		{Key: fieldExpireAt, Value: time.Now().Add(last)}, {Key: fieldRev, Value: int64(1)}, {Key: fieldAt, Value: past},
	})
	require.NoError(f.t, err)
}

func TestAFaultBesideARefusedClaimLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]faultproxy.Matcher{"join": joinCommands, "look": faultproxy.Command("find")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			holder := f.acquire(f.client(mongolock.TTL(20*time.Second)), "k")
			c, proxy := f.behind(noRetries, mongolock.TTL(time.Second))
			acquire := c.Acquire
			if name == "look" {
				acquire = c.TryAcquire
			}
			f.on(proxy, m, faultproxy.DropReply())
			l, err := acquire(f.ctx(), "k")
			assert.Nil(t, l, "answered %v, %v", l, err)
			assert.Error(t, err)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
			assert.NotErrorIs(t, err, mongolock.ErrHeld)
			f.mustHold(holder)
			f.release(holder)
			f.mustBeGone("k", time.Now().Add(time.Second)) // it may have joined the line
		})
	}
}

func TestAWaiterSurvivesAnOutageAndIsServed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	holder := f.acquire(f.client(mongolock.TTL(20*time.Second)), "k")
	c, proxy := f.behind(noRetries, mongolock.TTL(pace.Of(2*time.Second)))
	wait := f.inBackground(f.ctx(), c, "k")
	f.waits(c, "k")
	proxy.Cut()
	time.Sleep(500 * time.Millisecond) // real: cut off for a while
	f.release(holder)
	proxy.Restore()
	a := f.granted(wait)
	f.mustHold(a.lease)
}

func TestAWaitersClaimWhoseReplyIsLostIsCleanedUpAndItIsServed(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"reply dropped": faultproxy.DropReply(), "not primary": faultproxy.NotPrimary(),
		"write concern error": faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			holder := f.acquire(f.client(mongolock.TTL(20*time.Second)), "k")
			c, proxy := f.behind(noRetries, mongolock.TTL(pace.Of(3*time.Second)))
			wait := f.inBackground(f.ctx(), c, "k")
			f.waits(c, "k")
			rule := f.on(proxy, takeCommands.Nth(1), lost)
			f.release(holder)
			freed := time.Now()
			a := f.granted(wait)
			require.Equal(t, 1, rule.Hits(), "nothing was lost: the test shows nothing")
			f.within(3*time.Second, a.when.Sub(freed), "served")
			f.mustHold(a.lease)
		})
	}
}

func TestAServerOutOfReachIsACertainFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	proxy := faultproxy.New(t, f.uri)
	proxy.Cut()
	c := f.clientOn(f.connect(proxy.URI()), mongolock.TTL(500*time.Millisecond))
	for _, acquire := range []func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error){c.Acquire, c.TryAcquire} {
		l, err := acquire(f.ctx(), "k")
		assert.Nil(t, l, "answered %v, %v", l, err)
		assert.Error(t, err)
		assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
	}
	ctx, cancel := context.WithTimeout(f.ctx(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := c.Acquire(ctx, "k")
	assert.ErrorIs(t, err, context.DeadlineExceeded, "after %v", time.Since(begin))
	f.within(200*time.Millisecond+slack, time.Since(begin), "the call")
	proxy.Restore()
	f.until(time.Now().Add(5*time.Second), "it works without a new client", func() bool {
		l, err := c.TryAcquire(f.ctx(), "k")
		return err == nil && l.Release() == nil
	})
}

func TestAServersClockThatIsAnHourOffChangesNothing(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			ttl := pace.Of(3 * time.Second)
			f := newFixture(t)
			proxy := faultproxy.New(t, f.uri)
			f.proxies = append(f.proxies, proxy)
			proxy.ShiftClock(off)
			one, two := f.through(proxy, withRetries, mongolock.TTL(ttl)), f.through(proxy, withRetries, mongolock.TTL(ttl))
			l := f.acquire(one, "k")
			seen, err := one.Inspect(f.ctx(), "k")
			require.NoError(t, err)
			at := time.Until(seen.Holders[0].Since)
			require.LessOrEqual(t, (at - off).Abs(), time.Minute, "the server's clock is %v off: the test shows nothing", at)
			assert.LessOrEqual(t, l.Remaining(), ttl, "trusted")
			wait := f.inBackground(f.ctx(), two, "k")
			time.Sleep(ttl + ttl/4) // renewed
			assert.NoError(t, l.Err(), "held by %v, and by another: %v", l.Err(), len(wait) != 0)
			assert.Empty(t, wait, "held by %v, and by another: %v", l.Err(), len(wait) != 0)
			_, err = two.TryAcquire(f.ctx(), "k")
			assert.ErrorIs(t, err, mongolock.ErrHeld, "another")
			f.release(l)
			next := f.granted(wait).lease
			assert.Greater(t, next.Token(), l.Token(), "the token rises")
			f.release(next)
			f.expiresInTime(one, two, ttl)
		})
	}
}

// expiresInTime fails unless a waiter gets a lease that is not renewed soon after its end, and
// not before.
func (f *fixture) expiresInTime(one, two *mongolock.Client, ttl time.Duration) {
	f.t.Helper()
	sent := time.Now()
	l := f.acquire(one, "k", mongolock.NoRenewal())
	done := make(chan time.Time, 1)
	go func() { <-l.Done(); done <- time.Now() }()
	honoured := inside.Honoured(l)
	a := f.granted(f.inBackground(f.ctx(), two, "k"))
	ended := <-done
	assert.False(f.t, a.when.Before(honoured), "granted %v before the store's word ends, %v before the holder knew", honoured.Sub(a.when), ended.Sub(a.when))
	assert.False(f.t, a.when.Before(ended), "granted %v before the store's word ends, %v before the holder knew", honoured.Sub(a.when), ended.Sub(a.when))
	// The holder gives it back a margin after its end, at the latest it runs out.
	f.within(ttl+slack+pollPause, a.when.Sub(sent), "granted")
	assert.ErrorIs(f.t, l.Err(), mongolock.ErrLost, "it ended")
	f.release(a.lease)
}

// asleep suspends a client's machine for a while without its clock noticing: the server's time
// is suddenly later.
func asleep(t *testing.T, suspended time.Duration) (believed time.Duration, taken bool) {
	t.Helper()
	const ttl = 20 * time.Second
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(ttl), mongolock.NoRenewal())
	proxy.ShiftClock(suspended)
	l, err := c.TryAcquire(f.ctx(), "k")
	if err != nil { // it knows the time again
		mustBeUnknown(t, l, err)
		f.release(f.acquire(c, "k"))
		return 0, false
	}
	believed = l.Remaining()
	status, err := f.client().Inspect(f.ctx(), "k")
	require.NoError(t, err)
	if over := believed - status.Left(); over > 0 {
		t.Logf("believed for %v, honoured for %v", believed, status.Left())
		return believed, true
	}
	f.release(l)
	return believed, false
}

func TestASuspendedMachineTrustsItsLeaseNoLongerThanTheServerHonoursIt(t *testing.T) {
	t.Parallel()
	// Beyond its TTL its claim is over before it is answered, and given back.
	for suspended, least := range map[time.Duration]time.Duration{15 * time.Second: 10 * time.Second, 10 * time.Minute: 0} {
		believed, taken := asleep(t, suspended)
		assert.False(t, taken, "suspended for %v: believed for %v, taken by others", suspended, believed)
		assert.GreaterOrEqual(t, believed, least, "suspended for %v: believed for", suspended)
	}
}

func TestWithoutOperationTimeTokensStillRise(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string][]faultproxy.Action{
		"no operationTime": {faultproxy.RemoveOperationTime()},
		"no $clusterTime":  {faultproxy.RemoveClusterTime()},
		"neither":          {faultproxy.RemoveOperationTime(), faultproxy.RemoveClusterTime()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			proxy := faultproxy.New(t, f.uri)
			f.proxies = append(f.proxies, proxy)
			f.on(proxy, faultproxy.Command(), missing...)
			confirms := f.on(proxy, confirmCommands, faultproxy.DelayCommand(0))
			clients := []*mongolock.Client{f.through(proxy, withRetries, mongolock.TTL(pace.Of(5*time.Second))), f.through(proxy, withRetries, mongolock.TTL(pace.Of(5*time.Second)))}
			var last int64
			for i := range 3 {
				l := f.acquire(clients[i%2], "k")
				assert.Greater(t, l.Token(), last, "the token rises")
				last = l.Token()
				if i == 1 { // by hand
					_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}})
					require.NoError(t, err)
				}
				_ = l.Release()
				time.Sleep(time.Second) // the timestamps of some servers count seconds
			}
			if !testserver.Has("router") { // there more of them draw the time
				assert.Equal(t, 3, confirms.Hits(), "confirmations of 3 grants")
			}
		})
	}
}

func TestAGrantThatCannotBeConfirmedIsCleanedUp(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]faultproxy.Action{
		"command dropped": faultproxy.DropCommand(), "reply dropped": faultproxy.DropReply(), "refused": faultproxy.Fail(13),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			c, proxy := f.behind(noRetries, mongolock.TTL(3*time.Second))
			f.on(proxy, faultproxy.Command(), faultproxy.RemoveOperationTime())
			f.on(proxy, confirmCommands, lost)
			l, err := c.TryAcquire(f.ctx(), "k")
			mustBeUnknown(t, l, err)
			f.mustBeGone("k", time.Now().Add(time.Second))
		})
	}
}

func TestAnUnreadableReplyToAClaimIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries, mongolock.TTL(time.Second))
	for i, odd := range []bson.D{
		{{Key: "ok", Value: 1}, {Key: "value", Value: bson.D{}}},
		{{Key: "ok", Value: 1}, {Key: "value", Value: bson.D{{Key: fieldMark, Value: 1}}}},
		{{Key: "ok", Value: 0}},
		{},
	} {
		key := fmt.Sprint("k", i)
		rule := f.on(proxy, claimCommands, faultproxy.EditReply(func(bson.D) bson.D { return slices.Clone(odd) }))
		l, err := c.TryAcquire(f.ctx(), key)
		mustBeUnknown(t, l, err)
		rule.Remove()
		f.mustBeGone(key, time.Now().Add(time.Second))
	}
}

// A reply to an upsert without a document says nothing about its outcome.
func TestAClaimAnsweredWithoutADocumentIsConfirmed(t *testing.T) {
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
				f := newFixture(t)
				c, proxy := f.behind(withRetries, mongolock.TTL(pace.Of(5*time.Second)))
				first := f.acquire(c, "k")
				f.release(first)
				confirms := f.on(proxy, confirmCommands, faultproxy.DelayCommand(0))
				f.on(proxy, claimCommands.Nth(1), faultproxy.EditReply(edit))
				l := f.acquire(c, "k", opts...)
				require.Equal(t, 1, confirms.Hits(), "confirmations")
				assert.Greater(t, l.Token(), first.Token(), "the token rises")
				f.mustHold(l)
				f.release(l)
				f.mustBeAbsent("k")
			})
		}
	}
}

func TestAClaimAnsweredWithoutADocumentThatCannotBeConfirmedIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(noRetries)
	f.on(proxy, claimCommands, faultproxy.EditReply(func(bson.D) bson.D {
		_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}})
		assert.NoError(t, err)
		return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: nil}}
	}))
	l, err := c.TryAcquire(f.ctx(), "k")
	mustBeUnknown(t, l, err)
	f.mustBeAbsent("k")
}
