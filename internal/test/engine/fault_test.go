package engine_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

// unknownOutcomes are the ways in which the outcome of a claim can be unknown.
var unknownOutcomes = map[string]lab.Hook{
	"applied, reply lost": lab.LoseReply(errNet),
	"not applied":         lab.Fail(errNet),
	"applied late": func(_ context.Context, call *lab.Call) error {
		call.Late(200 * time.Millisecond)
		return errNet
	},
	"applied, reply never came": func(ctx context.Context, call *lab.Call) error {
		_ = call.Do()
		return lab.Hang(ctx, nil)
	},
}

func TestAClaimOfUnknownOutcomeIsFreeAgainWithinASecond(t *testing.T) {
	for name, outcome := range unknownOutcomes {
		t.Run(name, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				c := newClient(t, b)
				b.On(lab.Acquire, outcome)
				for _, ask := range []func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error){c.TryAcquire, c.Acquire} {
					l, err := ask(t.Context(), "k")
					require.Nil(t, l, "granted")
					assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
					assert.NotErrorIs(t, err, mongolock.ErrHeld)
					time.Sleep(time.Second)
					mustBeFree(t, b, "k")
				}
				b.On(lab.Acquire, nil)
				l := acquire(t, newClient(t, b), "k")
				time.Sleep(time.Hour)
				assert.NoError(t, l.Err(), "a later holder is left alone by the clean-up")
			})
		})
	}
}

func TestAProcessSuspendedBeforeItsRenewalIsSentLearnsThatTheLeaseIsLost(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k")
		b.On(lab.Renew, lab.Slow(10*time.Minute, 0)) // and only then the command leaves
		next := acquire(t, newClient(t, b.Mem), "k")
		assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
		time.Sleep(time.Hour)
		assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
		assert.NoError(t, next.Err())
	})
}

func TestEverythingWorksAgainAfterAMinuteWithoutTheStore(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c, other := newClient(t, b), newClient(t, b)
		short := acquire(t, c, "short")
		long := acquire(t, c, "long", mongolock.TTL(5*time.Minute))
		waiter := inBackground(t.Context(), other, "long")
		time.Sleep(time.Minute)
		b.All(lab.Hang)
		start := time.Now()
		_, err := c.TryAcquire(t.Context(), "new")
		assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		tookBetween(t, start, time.Second, 10*time.Second)
		time.Sleep(50 * time.Second)
		b.All(nil)
		assert.ErrorIs(t, short.Err(), mongolock.ErrLost)
		assert.NoError(t, long.Err())
		time.Sleep(10 * time.Second)
		release(t, acquire(t, c, "short"))
		release(t, acquire(t, c, "new"))
		release(t, long)
		assert.NoError(t, (<-waiter).err, "the waiter outlasts the outage")
	})
}

func TestAForeignRecordIsRefusedAndStaysAsItIs(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		b.Mem.Put("k", "theirs")
		c := newClient(t, b)
		_, errTry := c.TryAcquire(t.Context(), "k")
		_, errWait := c.Acquire(t.Context(), "k")
		_, errLook := c.Inspect(t.Context(), "k")
		for _, err := range []error{errTry, errWait, errLook} {
			assert.ErrorIs(t, err, mongolock.ErrForeign)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		}
		// A foreign record may also replace that of a lease that has waiters.
		l := acquire(t, c, "k2")
		here, there := inBackground(t.Context(), c, "k2"), inBackground(t.Context(), newClient(t, b), "k2")
		also := inBackground(t.Context(), c, "k2")
		synctest.Wait()
		b.Mem.Put("k2", "theirs")
		for _, w := range []<-chan result{here, there, also} {
			assert.ErrorIs(t, (<-w).err, mongolock.ErrForeign)
		}
		assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
		assert.ErrorIs(t, l.Release(), mongolock.ErrLost)
		record, _ := b.Mem.Foreign("k2")
		assert.Equal(t, "theirs", record)
	})
}

// A thousand leases, which end in every way that a lease can end.
func TestTokensRiseHoweverTheLeasesOfAKeyEnd(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		rng := rand.New(rand.NewPCG(1, 2))
		c := newClient(t, b)
		var last int64
		check := func(l *mongolock.Lease) {
			t.Helper()
			require.Greater(t, l.Token(), last)
			last = l.Token()
		}
		for i := range 1000 {
			l := acquire(t, c, "k", mongolock.TTL(time.Second))
			check(l)
			switch way := rng.IntN(7); way {
			case 0:
				release(t, l)
			case 1: // expiry
				b.On(lab.Renew, lab.Fail(errNet))
				<-l.Done()
				b.On(lab.Renew, nil)
			case 2: // deletion by hand
				b.Mem.Delete("k")
				assert.ErrorIs(t, l.Renew(t.Context()), mongolock.ErrLost)
			case 3: // hand-over
				wait := inBackground(t.Context(), c, "k")
				synctest.Wait()
				release(t, l)
				r := <-wait
				check(r.lease)
				release(t, r.lease)
			case 4: // another process
				other := newClient(t, b)
				release(t, l)
				l := acquire(t, other, "k")
				check(l)
				require.NoError(t, other.Close())
			case 5: // restart
				require.NoError(t, c.Close())
				c = newClient(t, b)
			case 6: // taken up elsewhere, and broken
				resumed, err := c.Resume(t.Context(), detach(t, l))
				require.NoError(t, err)
				require.Equal(t, last, resumed.Token(), "cycle %d", i)
				_, err = c.Break(t.Context(), "k", "why", 0)
				require.NoError(t, err)
				assert.ErrorIs(t, resumed.Renew(t.Context()), mongolock.ErrLost)
			}
		}
	})
}
