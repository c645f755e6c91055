package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
)

func TestAWaiterThatReadItsOwnGhostDoesNotWaitForItsEnd(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		held := acquire(t, newClient(t, b.Mem), "k", mongolock.TTL(10*time.Minute))
		c := newClient(t, struct{ store.Store }{b}, mongolock.TTL(time.Minute)) // without a feed it reads often
		wait := inBackground(t.Context(), c, "k")
		time.Sleep(time.Minute) // virtual: it has read the key several times
		ghosts := 0
		b.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
			if err := call.Do(); err != nil {
				return err
			}
			b.On(lab.Acquire, nil)
			return errNet // applied, and the waiter does not know
		})
		b.On(lab.Look, func(_ context.Context, call *lab.Call) error {
			err := call.Do()
			if len(call.Statuses) == 1 && len(call.Statuses[0].Holders) == 1 && call.Statuses[0].Holders[0].ID != held.ID() {
				ghosts++
			}
			return err
		})
		b.On(lab.Undo, lab.Slow(5*time.Second, 0)) // long enough for a read in between
		release(t, held)
		freed := time.Now()
		r := <-wait
		require.NoError(t, r.err)
		require.NotZero(t, ghosts, "the waiter read nothing while its ghost was there: this shows nothing")
		assert.Less(t, r.when.Sub(freed), 10*time.Second)
	})
}

func TestAClaimThatIsNeverAnsweredEndsASecondAfterItsCallerLeft(t *testing.T) {
	for _, how := range []string{"Acquire", "TryAcquire", "Resume"} {
		t.Run(how, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				never := func(ctx context.Context, call *lab.Call) error {
					if err := call.Do(); err != nil {
						return err
					}
					return lab.Hang(ctx, call) // applied, and the reply never comes
				}
				c := newClient(t, b, mongolock.TTL(time.Minute))
				ticket, err := acquire(t, newClient(t, b.Mem), "k", mongolock.TTL(time.Minute)).Detach(t.Context())
				require.NoError(t, err)
				b.On(lab.Acquire, never)
				b.On(lab.Transfer, never)
				key := "another"
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				switch how {
				case "Acquire":
					_, err = c.Acquire(ctx, key)
				case "TryAcquire":
					_, err = c.TryAcquire(ctx, key)
				case "Resume":
					key = "k"
					_, err = c.Resume(ctx, ticket)
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				rival := newClient(t, b.Mem)
				_, err = rival.TryAcquire(t.Context(), key)
				require.ErrorIs(t, err, mongolock.ErrHeld, "nothing was applied: this shows nothing")
				time.Sleep(1100 * time.Millisecond) // virtual: the second, and the clean-up
				_, err = rival.TryAcquire(t.Context(), key)
				assert.NoError(t, err)
			})
		})
	}
}

// withUnsettledClaim runs a test with a claim that was granted and whose reply was lost, on a
// store that fails until it is mended. Clean-ups take a second there.
func withUnsettledClaim(t *testing.T, test func(t *testing.T, c *mongolock.Client, b *lab.Store, mend func())) {
	t.Helper()
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		b.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
			err := call.Do()
			return errors.Join(err, errNet)
		})
		b.On(lab.Undo, func(context.Context, *lab.Call) error {
			time.Sleep(time.Second)
			return errNet
		})
		_, err := c.TryAcquire(t.Context(), "k")
		require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		synctest.Wait()
		test(t, c, b, func() { b.All(nil) })
	})
}

func TestCloseGoesOnCleaningUp(t *testing.T) {
	withUnsettledClaim(t, func(t *testing.T, c *mongolock.Client, b *lab.Store, mend func()) {
		time.AfterFunc(3*time.Second, mend)
		assert.NoError(t, c.Close())
		mustBeFree(t, b, "k")
	})
}

// withHungClaims runs a test with n keys, each with a claim of unknown outcome, on a store that
// answers nothing.
func withHungClaims(t *testing.T, n int, test func(t *testing.T, c *mongolock.Client, key func(int) string)) {
	t.Helper()
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		b.All(lab.Hang)
		key := func(i int) string { return fmt.Sprintf("k%04d", i) }
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { _, _ = c.TryAcquire(t.Context(), key(i)) })
		}
		wg.Wait()
		test(t, c, key)
		b.All(nil)
	})
}

func TestMaxWaitHoldsWhileAnEarlierClaimIsCleanedUp(t *testing.T) {
	const wait = 100 * time.Millisecond
	withHungClaims(t, 1, func(t *testing.T, c *mongolock.Client, key func(int) string) {
		start := time.Now()
		_, err := c.Acquire(t.Context(), key(0), mongolock.MaxWait(wait))
		assert.Equal(t, wait, time.Since(start))
		assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context goes on")
		assert.ErrorContains(t, err, "MaxWait exceeded")
		assert.Equal(t, mongolock.OutcomeTimeout, mongolock.OutcomeOf(err))
		start = time.Now()
		_, err = mongolock.AcquireAll(t.Context(), c, []string{key(0), "other"}, mongolock.MaxWait(wait))
		assert.Error(t, err)
		assert.LessOrEqual(t, time.Since(start), wait)
	})
}

func TestAnAcquireDoesNotQueueBehindCleanUpsOfOtherKeys(t *testing.T) {
	const keys = 400
	withHungClaims(t, keys, func(t *testing.T, c *mongolock.Client, key func(int) string) {
		start := time.Now()
		var wg sync.WaitGroup
		for i := range keys {
			wg.Go(func() {
				_, err := c.Acquire(t.Context(), key(i))
				assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
			})
		}
		wg.Wait()
		assert.LessOrEqual(t, time.Since(start), 20*time.Second, "two attempts of ten seconds")
	})
}
