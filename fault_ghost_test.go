package mongolock_test

import (
	"context"
	"testing"
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
