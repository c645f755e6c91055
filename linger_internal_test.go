package mongolock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store/memstore"
)

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
