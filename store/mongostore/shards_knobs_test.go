//go:build knobs

package mongostore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
)

func TestControlADateJudgedByAnotherShardsClockEndsALiveLease(t *testing.T) {
	knob.ShardsOfOneClock = true
	t.Cleanup(func() { knob.ShardsOfOneClock = false })
	stolen := 0
	farApart(t, func(w shardedWorld) {
		all, _ := w.holds(oneWay)
		if key := w.stolen(all); key != "" {
			stolen++
			t.Log("taken:", key)
		}
	})
	assert.Positive(t, stolen, "held all the same: it is not the document's own clock that protects")
}
