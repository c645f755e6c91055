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
		time.Sleep(time.Minute)
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
