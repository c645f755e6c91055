package mongolock

import (
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/suspend"
	"github.com/mongolock/mongolock/store/memstore"
)

// The keeper is locked when it asks a holding for its pause. So a lease that leaves its session may
// not keep the keeper waiting for it while it waits for the keeper. The keeper reads the clock while
// it is locked: that is when the lease leaves.
func TestALeaseThatLeavesItsSessionDoesNotWaitForTheKeeperWhileItIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewWithStore(memstore.New(), WithSession(), WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		defer c.Close()
		var locked atomic.Pointer[func()]
		c.measure(suspend.From(func() time.Duration {
			if f := locked.Swap(nil); f != nil {
				(*f)()
			}
			return 0
		}))
		l, err := c.Acquire(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		h, left, free := l.holding, make(chan bool), false
		require.NotNil(t, h.member.under)
		leaves := func() {
			go func() { left <- h.leaveSession() }()
			for range 1_000_000 { // a lock holds up virtual time
				runtime.Gosched()
				if h.mu.TryLock() {
					free = h.member.alone
					h.mu.Unlock()
				}
				if free {
					return
				}
			}
		}
		locked.Store(&leaves)
		c.keeper.Rearm()
		assert.True(t, <-left)
		assert.True(t, free, "the keeper can ask the lease, which has left its session and waits for the keeper")
	})
}
