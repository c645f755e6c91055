package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// Found by the simulation: a caller gave up, the grant that came later was given back
// under its MinHold, and the key stayed held although no caller had a lease of it.
func TestMinHoldDoesNotKeepAGrantThatNoCallerReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		b.hook(func(h *hooks) {
			h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				defer time.Sleep(2 * time.Second)
				return do()
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newClient(t, b).TryAcquire(ctx, "k", mongolock.MinHold(20*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(1100 * time.Millisecond) // the reply comes, and the grant is given back
		mustBeFree(t, b, "k")
	})
}
