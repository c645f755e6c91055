package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

// Found by the simulation: a caller gave up, the grant that came later was given back
// under its MinHold, and the key stayed held although no caller had a lease of it.
func TestMinHoldDoesNotKeepAGrantThatNoCallerReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := lab.New(memstore.New())
		b.On(lab.Acquire, lab.Slow(0, 2*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newClient(t, b).TryAcquire(ctx, "k", mongolock.MinHold(20*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(1100 * time.Millisecond) // the reply comes, and the grant is given back
		mustBeFree(t, b, "k")
	})
}
