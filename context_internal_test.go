package mongolock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store/memstore"
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
			l.Context(context.Background()) // this one never ends by itself
		}
		synctest.Wait()
		l.mu.Lock()
		n := len(l.contexts.open)
		l.mu.Unlock()
		assert.LessOrEqual(t, n, 1, "contexts kept")
	})
}

// A context of a lease takes as much memory as the lease.
func TestKeysGrantedAtOnceNeedNoContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewWithStore(memstore.New())
		require.NoError(t, err)
		defer c.Close()
		all, err := AcquireAll(t.Context(), c, []string{"a", "b", "c"})
		require.NoError(t, err)
		for _, l := range all {
			assert.Nil(t, l.contexts, l.Key())
		}
	})
}

func TestContextsOfOneParentShareTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.NotNil(t, cancelKey, "how package context names a parent to cancel")
		c, err := NewWithStore(memstore.New())
		require.NoError(t, err)
		defer c.Close()
		l, err := c.Acquire(t.Context(), "k")
		require.NoError(t, err)
		cause := errors.New("the application stops")
		app, cancel := context.WithCancelCause(t.Context())
		type mark struct{}
		all := make([]context.Context, 1000)
		for i := range all {
			all[i] = l.Context(context.WithValue(app, mark{}, i))
		}
		l.mu.Lock()
		n := len(l.contexts.open)
		l.mu.Unlock()
		assert.Equal(t, 1, n, "contexts kept")
		for i, ctx := range all {
			require.Equal(t, i, ctx.Value(mark{}))
		}
		cancel(cause)
		for _, ctx := range all {
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.Equal(t, cause, context.Cause(ctx))
		}
		assert.NoError(t, l.Err())
	})
}
