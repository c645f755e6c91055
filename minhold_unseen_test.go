package mongolock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

// Found by the simulation: a caller gave up, the grant that came later was given back
// under its MinHold, and the key stayed held although no caller had a lease of it.
func TestMinHoldDoesNotKeepAGrantThatNoCallerReceived(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		b.On(lab.Acquire, lab.Slow(0, 2*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newClient(t, b).TryAcquire(ctx, "k", mongolock.MinHold(20*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(1100 * time.Millisecond) // the reply comes, and the grant is given back
		mustBeFree(t, b, "k")
	})
}
