//go:build knobs && go1.26

package simulation_test

import (
	"strings"
	"testing"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/simulation"
)

// updateControls are the safeties of updates, each taken out.
var updateControls = []struct {
	first uint64 // seed that notices
	name  string
	out   *bool
	s     simulation.Settings
}{
	{1, "a save by key alone", &knob.SaveByKey, plain},
	{1, "a save that one node acknowledges", &knob.SaveSoftly, elections},
	{2266, "a claim that the driver sends again", &knob.UpdateRepeated, elections},
}

func TestControlEverySafetyOfUpdatesTakenOutIsNoticed(t *testing.T) {
	for _, c := range updateControls {
		if !strings.Contains(c.name, *simControl) {
			continue
		}
		noticed := func(t *testing.T, seed uint64) bool {
			*c.out = true
			out := liveUpdates(t, seed, c.s)
			*c.out = false
			found := out.Check()
			if len(found) > 0 {
				t.Logf("seed %d: %v", seed, found[0])
			}
			return len(found) > 0
		}
		t.Run(c.name, func(t *testing.T) {
			defer func() { *c.out = false }()
			if !*simSearch && noticed(t, c.first) {
				return
			}
			for seed := range uint64(*simBudget) {
				if noticed(t, seed+1) {
					return
				}
			}
			t.Errorf("no violation in %d seeds", *simBudget)
		})
	}
}
