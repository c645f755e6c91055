package claims

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
)

// ends are the claims about how leases end.
var ends = []claim{
	{"AReleaseIsNoLossAndStopsTheRenewals", anyServer, aReleaseIsNoLossAndStopsTheRenewals},
	{"ReleasingTwiceOrAfterALossNeverFreesALaterHolder", anyServer, releasingTwiceOrAfterALossNeverFreesALaterHolder},
	{"MaxHoldEndsALeaseThatWouldRenewForEver", anyServer, maxHoldEndsALeaseThatWouldRenewForEver},
	{"MinHoldKeepsTheKeyThoughReleased", Atomic, minHoldKeepsTheKeyThoughReleased},
	{"MinHoldEndsAtTheTTLWhenTheHolderDied", Atomic, minHoldEndsAtTheTTLWhenTheHolderDied},
	{"ABreakTellsTheHolderBeforeTheNextIsGranted", Atomic, aBreakTellsTheHolderBeforeTheNextIsGranted},
	{"DetachEndsTheLeaseHereAndResumeKeepsTheToken", Atomic, detachEndsTheLeaseHereAndResumeKeepsTheToken},
	{"OfSeveralThatResumeOneWins", Atomic, ofSeveralThatResumeOneWins},
	{"ATicketIsWorthNothingAfterItsTTL", Atomic, aTicketIsWorthNothingAfterItsTTL},
}

// margin is the default for a TTL.
func margin(ttl time.Duration) time.Duration { return min(ttl/10, time.Second) }

func aReleaseIsNoLossAndStopsTheRenewals(t *testing.T, env Env) {
	c := env.client(t, mongolock.TTL(env.TTL))
	l := acquire(t, c, "k")
	ctx := l.Context(t.Context())
	env.Sent()
	time.Sleep(env.TTL + env.TTL/10) // no renewal is due at that moment
	assert.GreaterOrEqual(t, env.Sent(), 2, "not renewed: the test shows nothing")
	release(t, l)
	<-l.Done()
	assert.ErrorIs(t, l.Err(), mongolock.ErrReleased)
	assert.NotErrorIs(t, l.Err(), mongolock.ErrLost)
	<-ctx.Done()
	assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrReleased)
	time.Sleep(env.TTL / 10) // on a busy machine one may have been on its way
	env.Sent()
	time.Sleep(time.Duration(env.Many) * env.TTL / 10)
	assert.Zero(t, env.Sent(), "commands after the release")
	assert.ErrorIs(t, l.Renew(within(t)), mongolock.ErrReleased)
}

func releasingTwiceOrAfterALossNeverFreesALaterHolder(t *testing.T, env Env) {
	one, two := env.client(t), env.client(t)
	l := acquire(t, one, "k")
	release(t, l)
	next := acquire(t, two, "k")
	env.Sent()
	for range 3 {
		release(t, l)
	}
	assert.Zero(t, env.Sent(), "commands of repeated releases")
	assert.NoError(t, next.Renew(within(t)))
	release(t, next)

	lost := acquire(t, one, "k", mongolock.TTL(env.TTL), mongolock.NoRenewal())
	<-lost.Done()
	next = acquire(t, two, "k")
	for range 3 {
		assert.ErrorIs(t, lost.Release(), mongolock.ErrLost, "Release of a lost lease")
	}
	time.Sleep(env.TTL / 3)
	assert.NoError(t, next.Renew(within(t)))
	release(t, next)
}

func maxHoldEndsALeaseThatWouldRenewForEver(t *testing.T, env Env) {
	maxHold := env.TTL * 5 / 2
	start := time.Now()
	l := acquire(t, env.client(t, mongolock.TTL(env.TTL)), "k", mongolock.MaxHold(maxHold))
	end := ended(l)
	ctx := l.Context(t.Context())
	wait := inBackground(within(t), env.client(t))
	time.Sleep(env.Before(maxHold - time.Since(start)))
	assert.NoError(t, l.Err(), "ended early")
	assert.LessOrEqual(t, l.Remaining(), maxHold-time.Since(start)+env.Late())
	over := <-end
	assert.LessOrEqual(t, over.Sub(start), maxHold+env.Late(), "until it ended")
	assert.GreaterOrEqual(t, over.Sub(start), maxHold-env.Late(), "until it ended")
	<-ctx.Done()
	assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrMaxHold)
	assert.ErrorIs(t, l.Err(), mongolock.ErrMaxHold)
	assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
	o := granted(t, wait)
	gap := o.when.Sub(over)
	assert.GreaterOrEqual(t, gap, margin(env.TTL)-env.Late(), "from the end to the next grant")
	assert.LessOrEqual(t, gap, margin(env.TTL)+100*time.Millisecond+env.LateWake(), "from the end to the next grant")
	assert.ErrorIs(t, l.Release(), mongolock.ErrMaxHold)
	release(t, o.lease)
}

func minHoldKeepsTheKeyThoughReleased(t *testing.T, env Env) {
	for _, minHold := range []time.Duration{env.TTL * 2 / 3, env.TTL * 5 / 3} { // less than the TTL, and more
		one, two := env.client(t, mongolock.TTL(env.TTL)), env.client(t, mongolock.TTL(env.TTL))
		start := time.Now()
		l := acquire(t, one, "k", mongolock.MinHold(minHold))
		got := time.Now()
		here, there := inBackground(within(t), one), inBackground(within(t), two)
		time.Sleep(env.TTL / 10)
		release(t, l)
		assert.ErrorIs(t, l.Err(), mongolock.ErrReleased)
		mustBeHeld(t, env.client(t), "k")
		for range 2 {
			var o outcome
			select {
			case o = <-here:
			case o = <-there:
			}
			require.NoError(t, o.err)
			assert.GreaterOrEqual(t, o.when.Sub(start), minHold, "from the call to the next grant")
			assert.LessOrEqual(t, o.when.Sub(got), minHold+minHold/500+50*time.Millisecond+2*env.LateWake(), "from the grant to the next")
			release(t, o.lease)
		}
	}
}

func minHoldEndsAtTheTTLWhenTheHolderDied(t *testing.T, env Env) {
	start := time.Now()
	dead := acquire(t, env.client(t), "k", mongolock.TTL(env.TTL), mongolock.NoRenewal(), mongolock.MinHold(time.Hour))
	inside.Abandon(dead)
	honoured := inside.StoreExpiry(dead)
	env.near(t, env.TTL, honoured.Sub(start), "the store honours it for the TTL")
	next := acquire(t, env.client(t), "k")
	now := time.Now()
	assert.False(t, now.Before(honoured), "granted %v before its end", honoured.Sub(now))
	assert.LessOrEqual(t, now.Sub(honoured), 50*time.Millisecond+env.LateWake(), "from the end to the next grant")
	release(t, next)
}

func aBreakTellsTheHolderBeforeTheNextIsGranted(t *testing.T, env Env) {
	holder, rival, operator := env.client(t, mongolock.TTL(env.TTL)), env.client(t), env.client(t)
	l := acquire(t, holder, "k")
	ctx := l.Context(t.Context())
	told := make(chan time.Time, 1)
	go func() { <-ctx.Done(); told <- time.Now() }()
	wait := inBackground(within(t), rival)
	time.Sleep(env.TTL / 10)
	start := time.Now()
	grace := env.TTL/3 + margin(env.TTL) + env.Late()
	broken, err := operator.Break(within(t), "k", "stuck since noon", grace)
	require.NoError(t, err)
	require.Len(t, broken, 1)
	assert.Equal(t, l.ID(), broken[0].ID)
	assert.LessOrEqual(t, time.Since(start), grace+env.Late(), "the break")
	o := granted(t, wait)
	gap := o.when.Sub(<-told)
	assert.GreaterOrEqual(t, gap, time.Duration(0), "the next was granted before the holder was told")
	assert.GreaterOrEqual(t, gap, margin(env.TTL)-env.Late(), "from telling the holder to the next grant")
	assert.ErrorIs(t, l.Err(), mongolock.ErrBroken)
	assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
	assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrBroken)
	assert.ErrorContains(t, l.Err(), "stuck since noon")
	assert.ErrorIs(t, l.Release(), mongolock.ErrBroken)
	time.Sleep(time.Duration(env.Many) * env.TTL / 10)
	assert.NoError(t, o.lease.Renew(within(t)), "the break hit the next holder")
	release(t, o.lease)

	broken, err = operator.Break(within(t), "k", "nobody there", 0)
	assert.NoError(t, err, "of a free key")
	assert.Empty(t, broken, "of a free key")
}

func detachEndsTheLeaseHereAndResumeKeepsTheToken(t *testing.T, env Env) {
	one, two := env.client(t), env.client(t, mongolock.TTL(env.TTL))
	l := acquire(t, one, "k", mongolock.TTL(env.TTL), mongolock.Note("note"))
	ctx := l.Context(t.Context())
	time.Sleep(env.TTL / 5)
	detached := time.Now()
	ticket, err := l.Detach(within(t))
	require.NoError(t, err)
	<-ctx.Done()
	assert.ErrorIs(t, l.Err(), mongolock.ErrDetached)
	assert.NotErrorIs(t, l.Err(), mongolock.ErrLost)
	assert.ErrorIs(t, l.Release(), mongolock.ErrDetached)
	assert.NoError(t, one.Close())
	time.Sleep(env.Before(env.TTL - time.Since(detached)))
	mustBeHeld(t, two, "k")

	resumed, err := two.Resume(within(t), ticket)
	require.NoError(t, err)
	assert.Equal(t, l.Token(), resumed.Token(), "the token is kept")
	assert.NotEqual(t, l.ID(), resumed.ID(), "a resumed lease has an ID of its own")
	assert.Equal(t, "k", resumed.Key())
	time.Sleep(time.Duration(env.Many) * env.TTL / 4)
	assert.NoError(t, resumed.Err())
	release(t, resumed)
	next := acquire(t, two, "k")
	assert.Greater(t, next.Token(), resumed.Token(), "the token rises")
	release(t, next)
}

func ofSeveralThatResumeOneWins(t *testing.T, env Env) {
	ticket, err := acquire(t, env.client(t), "k").Detach(within(t))
	require.NoError(t, err)
	var mu sync.Mutex // protects won
	var won []*mongolock.Lease
	var wg sync.WaitGroup
	for _, c := range env.clients(t, env.Crowd) {
		wg.Go(func() {
			l, err := c.Resume(within(t), ticket)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, l)
				return
			}
			assert.Nil(t, l)
			assert.ErrorIs(t, err, mongolock.ErrLost)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		})
	}
	wg.Wait()
	require.Len(t, won, 1, "winners")
	release(t, won[0])
}

func aTicketIsWorthNothingAfterItsTTL(t *testing.T, env Env) {
	c, other := env.client(t), env.client(t)
	worthNothing := func(c *mongolock.Client, ticket string) {
		t.Helper()
		l, err := c.Resume(within(t), ticket)
		assert.Nil(t, l)
		assert.ErrorIs(t, err, mongolock.ErrLost)
	}
	l := acquire(t, c, "k", mongolock.TTL(env.TTL))
	ticket, err := l.Detach(within(t))
	require.NoError(t, err)
	honoured := inside.StoreExpiry(l)
	o := granted(t, inBackground(within(t), other))
	assert.False(t, o.when.Before(honoured), "another was granted %v before its end", honoured.Sub(o.when))
	assert.LessOrEqual(t, o.when.Sub(honoured), 50*time.Millisecond+env.LateWake(), "from its end to another grant")
	worthNothing(c, ticket)
	assert.NoError(t, o.lease.Renew(within(t)), "the next holder was disturbed")
	release(t, o.lease)

	if env.Watched {
		return
	}
	ticket, err = acquire(t, c, "k", mongolock.TTL(env.TTL)).Detach(within(t))
	require.NoError(t, err)
	time.Sleep(env.TTL + env.Late())
	worthNothing(c, ticket) // although the key is free
}
