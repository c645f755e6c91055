package mongolock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// withUnsettledClaim runs a test with a claim that was granted and whose reply was lost, on a
// store that fails until it is mended. Clean-ups take a second there.
func withUnsettledClaim(t *testing.T, test func(t *testing.T, c *mongolock.Client, b *hookedStore, mend func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		c := newClient(t, b)
		b.hook(func(h *hooks) {
			h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				_, err := do()
				return store.Grant{}, errors.Join(err, errNet)
			}
			h.undo = func(context.Context, store.Ref, func() (bool, error)) (bool, error) {
				time.Sleep(time.Second)
				return false, errNet
			}
		})
		_, err := c.TryAcquire(t.Context(), "k")
		require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		synctest.Wait()
		test(t, c, b, func() { b.hook(func(h *hooks) { *h = hooks{} }) })
	})
}

func TestACallIsNotAnsweredByACleanUpThatBeganBeforeItAndFails(t *testing.T) {
	withUnsettledClaim(t, func(t *testing.T, c *mongolock.Client, _ *hookedStore, mend func()) {
		mend() // a clean-up is under way, and will fail all the same
		l, err := c.TryAcquire(t.Context(), "k")
		require.NoError(t, err)
		release(t, l)
	})
}

func TestCloseGoesOnCleaningUp(t *testing.T) {
	withUnsettledClaim(t, func(t *testing.T, c *mongolock.Client, b *hookedStore, mend func()) {
		time.AfterFunc(3*time.Second, mend)
		assert.NoError(t, c.Close())
		mustBeFree(t, b, "k")
	})
}
