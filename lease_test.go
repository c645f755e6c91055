package mongolock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestALeaseOfThirtySecondsIsHeldForTwoDays(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		hours := fewer.Of(48)
		time.Sleep(time.Duration(hours)*time.Hour + time.Second) // not at the moment of a renewal, which may be under way then
		require.NoError(t, l.Err())
		// One renewal every third of the TTL, and nothing else.
		assert.InDelta(t, 360*hours, b.Count(lab.Renew), 1, "renewals")
		assert.Equal(t, b.Count(lab.Renew)+1, b.Count(), "commands")
		release(t, l)
		b.Reset()
		time.Sleep(time.Hour)
		assert.Zero(t, b.Count(), "commands in the hour after the release")
	})
}

func TestAKeyIsHeldUntilTheTTLIsOverAndFreeAfterIt(t *testing.T) {
	for _, shift := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("server clock ", shift), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(shift) }))
				down := lab.New(mem) // the holder's connection to the store; releases fail
				one, two := newClient(t, down), newClient(t, mem)
				l := acquire(t, one, "k", mongolock.NoRenewal(), mongolock.TTL(10*time.Second))
				down.On(lab.Release, lab.Fail(errNet))
				time.Sleep(9 * time.Second)
				assert.True(t, isOver(l.Done()), "the holder is told one margin before the end")
				time.Sleep(time.Second - time.Nanosecond)
				_, err := two.TryAcquire(t.Context(), "k")
				assert.ErrorIs(t, err, mongolock.ErrHeld, "just before the end")
				time.Sleep(time.Nanosecond)
				l2, err := two.TryAcquire(t.Context(), "k")
				require.NoError(t, err, "at the end")
				require.Greater(t, l2.Token(), l.Token())
				time.Sleep(time.Minute) // the release of the first lease is repeated
				assert.NoError(t, l2.Err(), "the first lease's release must not affect the second lease")
			})
		})
	}
}

func TestAServerClockThatIsAnHourOffDoesNotWeakenExclusion(t *testing.T) {
	for _, shift := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(shift) }))
			one, two := newClient(t, mem), newClient(t, mem)
			l := acquire(t, one, "k", mongolock.TTL(time.Second))
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(time.Minute)
			assert.NoError(t, l.Err(), "server clock %v", shift)
			assert.Empty(t, wait, "the rival got the key; server clock %v", shift)
			release(t, l)
			r := <-wait
			require.NoError(t, r.err)
			tookBetween(t, r.when, 0, 0)
		})
	}
}

func TestALeaseWithALongMaxHoldSurvivesASlowGrant(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		b.On(lab.Acquire, lab.Slow(0, 6*time.Second))
		l := acquire(t, newClient(t, b), "k", mongolock.TTL(10*time.Second), mongolock.MaxHold(time.Hour))
		time.Sleep(time.Minute)
		assert.NoError(t, l.Err())
	})
}
