//go:build knobs

package simulated_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/trace"
)

// In the history of a scheduler without one of its safeties a claim is refused; with all of them nothing is.
func TestControlAHistoryWithoutASafetyOfJobsIsRefused(t *testing.T) {
	var all []*trace.Behaviour
	play := func(name string) {
		synctest.Test(t, func(c *testing.T) {
			b := simulate(c, 21, onMemory).behaviour()
			b.Name = name
			all = append(all, b)
		})
	}
	play("")
	for name, taken := range map[string]*bool{"deaths": &knob.DeathsUncounted, "drops": &knob.DropsForgotten} {
		*taken = true
		play(name)
		*taken = false
	}
	for _, v := range ask(t, all) {
		if v.Behaviour.Name == "" {
			assert.Empty(t, v.Refused, "with all safeties: %v", v)
			continue
		}
		assert.Equal(t, "the specification makes another claim of this document", v.Refused, v)
	}
}
