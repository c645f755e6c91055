package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

func TestHandOverIsOneCommand(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		wait := inBackground(t.Context(), c, "k")
		synctest.Wait()
		b.Reset()
		release(t, l)
		r := <-wait
		require.NoError(t, r.err)
		require.Greater(t, r.lease.Token(), l.Token())
		assert.Equal(t, 1, b.Count(lab.Transfer), "transfers")
		assert.Equal(t, 1, b.Count(), "commands")
		time.Sleep(time.Hour)
		assert.NoError(t, r.lease.Err(), "the lease is renewed")
	})
}

func TestAClientHandsOverAtMostSixteenTimesInARowWhileAnotherWaits(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		greedy, other := newClient(t, b), newClient(t, b)
		grants, stop := loop(t, greedy, 4, time.Millisecond)
		defer stop()
		time.Sleep(100 * time.Millisecond)
		before := grants.Load()
		wait := inBackground(t.Context(), other, "k")
		r := <-wait
		require.NoError(t, r.err)
		// One holder at the start, one that first saw the waiter, and sixteen hand-overs.
		assert.GreaterOrEqual(t, grants.Load()-before, int64(10), "grants to the others meanwhile")
		assert.LessOrEqual(t, grants.Load()-before, int64(18), "grants to the others meanwhile")
		time.Sleep(60 * time.Millisecond) // the others stand in line
		before = grants.Load()
		release(t, r.lease)
		time.Sleep(5 * time.Millisecond) // one that was told beside the release may ask too early, and again
		assert.Greater(t, grants.Load(), before, "grants to the others after that")
	})
}

func TestHandOversAreUnlimitedWhileNoOtherClientWaits(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		_, stop := loop(t, c, 2, time.Millisecond)
		time.Sleep(time.Second)
		stop()
		assert.GreaterOrEqual(t, b.Count(lab.Transfer), 990, "hand-overs in a second")
		assert.LessOrEqual(t, b.Count(lab.Acquire), 2, "claims in a second")
	})
}

func TestACancelDuringAHandOverLeavesTheKeyUsable(t *testing.T) {
	const took = 10 * time.Millisecond
	for _, withSecond := range []bool{true, false} {
		for offset := -took; offset <= 2*took; offset += took / 4 {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				b.On(lab.Transfer, lab.Slow(took/2, took/2))
				c := newClient(t, b)
				l := acquire(t, c, "k")
				ctx, cancel := context.WithCancel(t.Context())
				first := inBackground(ctx, c, "k")
				synctest.Wait()
				var second <-chan result
				if withSecond {
					second = inBackground(t.Context(), c, "k")
				}
				time.Sleep(50 * time.Millisecond)
				time.AfterFunc(took+offset, cancel)
				time.Sleep(took)
				release(t, l)
				r := <-first
				if r.err == nil {
					release(t, r.lease)
				} else {
					assert.ErrorIs(t, r.err, context.Canceled, "offset %v", offset)
					assert.Nil(t, r.lease, "offset %v", offset)
				}
				cancel()
				if second != nil {
					r := <-second
					require.NoError(t, r.err, "offset %v", offset)
					release(t, r.lease)
				}
				time.Sleep(100 * time.Millisecond)
				mustBeFree(t, b, "k")
			})
		}
	}
}

func TestTheWaiterIsServedAfterAHandOverOfUnknownOutcome(t *testing.T) {
	for _, applied := range []bool{false, true} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			c := newClient(t, b)
			l := acquire(t, c, "k")
			wait := inBackground(t.Context(), c, "k")
			synctest.Wait()
			b.On(lab.Transfer, func(_ context.Context, call *lab.Call) error {
				if applied {
					_ = call.Do()
				}
				return errNet
			})
			err := l.Release()
			assert.ErrorIs(t, err, errNet)
			assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
			start := time.Now()
			r := <-wait
			require.NoError(t, r.err)
			require.Greater(t, r.lease.Token(), l.Token())
			tookBetween(t, start, 0, time.Second)
			time.Sleep(time.Hour)
			release(t, l)
			assert.NoError(t, r.lease.Err())
		})
	}
}
