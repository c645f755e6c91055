package mongolock

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store/memstore"
)

// A context of a lease takes as much memory as the lease.
func TestKeysGrantedAtOnceNeedNoContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewWithStore(memstore.New())
		require.NoError(t, err)
		defer c.Close()
		all, err := AcquireAll(t.Context(), c, []string{"a", "b", "c"})
		require.NoError(t, err)
		for _, l := range all {
			assert.Nil(t, l.holding.tether, l.Key())
		}
	})
}
