//go:build knobs

package simulated_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/trace"
)

// Of the histories of a scheduler without one of its safeties one has a claim that is refused; with all of them nothing is.
func TestControlAHistoryWithoutASafetyOfJobsIsRefused(t *testing.T) {
	var all []*trace.Behaviour
	add := func(name string) {
		for _, seed := range []uint64{1, 2, 21} {
			b := play(t, seed, onMemory).behaviour()
			b.Name = name
			all = append(all, b)
		}
	}
	add("")
	for name, taken := range map[string]*bool{"deaths": &knob.DeathsUncounted, "drops": &knob.DropsForgotten} {
		*taken = true
		add(name)
		*taken = false
	}
	refused := map[string]string{}
	for _, v := range ask(t, all) {
		if v.Refused != "" {
			refused[v.Behaviour.Name] = v.Refused
		}
	}
	const claims = "the specification makes another claim of this document"
	assert.Equal(t, map[string]string{"deaths": claims, "drops": claims}, refused)
}
