package mongolock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store/memstore"
)

// A timer of a day would hold the holding, and the caller's context, for as long.
func TestAKeptKeyThatIsFreedLeavesNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, err := NewWithStore(s)
		require.NoError(t, err)
		defer c.Close()
		var l *Lease
		for range 2 { // the second one is claimed when the feed is open
			l, err = c.Acquire(t.Context(), "k", Linger(24*time.Hour))
			require.NoError(t, err)
			synctest.Wait()
			require.NoError(t, l.Release())
		}
		require.Equal(t, 1, c.Stats().Idle)
		other, err := NewWithStore(s)
		require.NoError(t, err)
		defer other.Close()
		_, err = other.Acquire(t.Context(), "k")
		require.NoError(t, err)
		synctest.Wait()
		assert.False(t, l.holding.keepTimer.Stop(), "the timer runs")
	})
}

func TestTwoCallsOfReleaseGiveBackTheirOwnLeaseOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewWithStore(memstore.New())
		require.NoError(t, err)
		defer c.Close()
		var l *Lease
		for range 2 { // the second one is claimed when the feed is open
			l, err = c.Acquire(t.Context(), "k", Linger(time.Minute))
			require.NoError(t, err)
			synctest.Wait()
			if l.Token() == 1 {
				require.NoError(t, l.Release())
			}
		}
		require.True(t, l.end(ErrReleased), "the first call")
		require.False(t, l.leave(), "the second call, which goes on to give back what is in the holding")
		assert.False(t, l.linger(), "the first call goes on: the holding would go on with another lease, which the second call gave back")
		assert.NoError(t, l.holding.giveBack())
		all, err := c.Inspect(t.Context(), "k")
		require.NoError(t, err)
		assert.True(t, all.Free())
	})
}
