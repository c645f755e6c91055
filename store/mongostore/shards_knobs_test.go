//go:build knobs

package mongostore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/knob"
)

func TestControlADateJudgedByAnotherShardsClockEndsALiveLease(t *testing.T) {
	knob.ShardsOfOneClock = true
	t.Cleanup(func() { knob.ShardsOfOneClock = false })
	stolen := 0
	farApart(t, func(w shardedWorld) {
		c, _ := w.process()
		all := make(map[string]*mongolock.Lease)
		for _, name := range []string{"near", "k"} { // one after the other: with the fault some of several at once come too late
			lease, err := c.Acquire(w.t.Context(), name)
			require.NoError(w.t, err)
			all[name] = lease
		}
		if key := w.stolen(all); key != "" {
			stolen++
			t.Log("taken:", key)
		}
	})
	assert.Positive(t, stolen, "held all the same: it is not the document's own clock that protects")
}
