package mongolock

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/mongolock/mongolock/store/memstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestManyContextsOfALongLeaseDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewWithStore(memstore.New())
		require.NoError(t, err)
		defer c.Close()
		l, err := c.Acquire(t.Context(), "k")
		require.NoError(t, err)
		for range 1000 {
			job, cancel := context.WithCancel(t.Context())
			l.Context(job)
			cancel()
			l.Context(context.Background()) // has no end of its own
		}
		synctest.Wait()
		l.mu.Lock()
		n := len(l.contexts.open)
		l.mu.Unlock()
		assert.LessOrEqual(t, n, 1, "contexts kept")
	})
}
