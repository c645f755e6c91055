package mongolock

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store/memstore"
)

// A Release of the holder's own may have settled the lease, and not taken it out of the client's list yet, as Close ends.
func TestCloseNamesNoLeaseThatIsSettled(t *testing.T) {
	c, err := NewWithStore(memstore.New())
	require.NoError(t, err)
	l, err := c.TryAcquire(t.Context(), "smtp")
	require.NoError(t, err)
	h := l.holding
	assert.ErrorContains(t, c.leftBehind(nil), `"smtp" is not released`)
	h.mu.Lock()
	h.release.settle(nil)
	h.mu.Unlock()
	assert.NoError(t, c.leftBehind(nil))
	c.queues.forget(h)
	assert.NoError(t, c.Close())
}
