package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestAWaiterThatReadItsOwnGhostDoesNotWaitForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		held := acquire(t, newClient(t, b.mem), "k", mongolock.TTL(10*time.Minute))
		c := newClient(t, struct{ store.Store }{b}, mongolock.TTL(time.Minute)) // without a feed it reads often
		wait := inBackground(t.Context(), c, "k")
		time.Sleep(time.Minute) // virtual: it has read the key several times
		ghosts := 0
		b.hook(func(h *hooks) {
			h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				if g, err := do(); err != nil {
					return g, err
				}
				b.hook(func(h *hooks) { h.acquire = nil })
				return store.Grant{}, errNet // applied, and the waiter does not know
			}
			h.look = func(_ context.Context, _ []string, do func() ([]store.Status, error)) ([]store.Status, error) {
				all, err := do()
				if len(all) == 1 && len(all[0].Holders) == 1 && all[0].Holders[0].ID != held.ID() {
					ghosts++
				}
				return all, err
			}
			h.undo = func(_ context.Context, _ store.Ref, do func() (bool, error)) (bool, error) {
				time.Sleep(5 * time.Second) // long enough for a read in between
				return do()
			}
		})
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
			synctest.Test(t, func(t *testing.T) {
				b := newHookedStore(memstore.New())
				never := func(ctx context.Context, do func() (store.Grant, error)) (store.Grant, error) {
					if _, err := do(); err != nil {
						return store.Grant{}, err
					}
					<-ctx.Done() // applied, and the reply never comes
					return store.Grant{}, ctx.Err()
				}
				c := newClient(t, b, mongolock.TTL(time.Minute))
				ticket, err := acquire(t, newClient(t, b.mem), "k", mongolock.TTL(time.Minute)).Detach(t.Context())
				require.NoError(t, err)
				b.hook(func(h *hooks) {
					h.acquire = func(ctx context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
						return never(ctx, do)
					}
					h.transfer = func(ctx context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
						return never(ctx, do)
					}
				})
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
				rival := newClient(t, b.mem)
				_, err = rival.TryAcquire(t.Context(), key)
				require.ErrorIs(t, err, mongolock.ErrHeld, "nothing was applied: this shows nothing")
				time.Sleep(1100 * time.Millisecond) // virtual: the second, and the clean-up
				_, err = rival.TryAcquire(t.Context(), key)
				assert.NoError(t, err)
			})
		})
	}
}
