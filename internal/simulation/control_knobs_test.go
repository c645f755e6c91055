//go:build knobs

package simulation_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/simulation"
)

// A control is one safety taken out. The simulation must notice, within the
// number of seeds that CI runs.
type control struct {
	name     string
	set      func(on bool)
	settings simulation.Settings
}

var controls = []control{
	{"margin zero with a late timer", func(bool) {}, simulation.Settings{Margin: 0, Late: 300 * time.Millisecond}},
	{"deadline counted from the reply", func(on bool) { knob.DeadlineFromReply = on }, plain},
	{"deadline from an unchecked old sample", func(on bool) { knob.DeadlineFromSample = on }, plain},
	{"release without id", func(on bool) { knob.ReleaseByKey = on }, plain},
	{"renewal that upserts", func(on bool) { knob.RenewalUpserts = on }, plain},
	{"$set instead of $max in a renewal", func(on bool) { knob.RenewalSets = on }, plain},
	{"one id sent twice", func(on bool) { knob.OneID = on }, plain},
	{"clean-up while a later attempt is under way", func(on bool) { knob.ReuseID = on }, plain},
	{"counter token in the document", func(on bool) { knob.CounterToken = on }, plain},
	{"token stamped before a stalled insert", func(on bool) { knob.StampedToken = on }, plain},
	{"unknown outcome read as not held", func(on bool) { knob.UnknownIsNotHeld = on }, plain},
	{"wantedUntil written after the look", func(on bool) { knob.WordAfterLook = on }, plain},
	{"compare-and-swap on rev alone", func(on bool) { knob.SwapByRevAlone = on }, plain},
	{"clean-up in a new session", func(on bool) { knob.UndoElsewhere = on }, plain},
	{"one clean-up where there are no txnNumbers", func(on bool) { knob.UndoOnce = on }, plain},
	{"a driver retry's stalled twin ignored", func(on bool) { knob.TwinIgnored = on }, plain},
	{"Done closed after the transfer was sent", func(on bool) { knob.DoneAfterTransfer = on }, plain},
	{"a lost lease given back at its deadline", func(on bool) { knob.GiveBackAtDeadline = on }, plain},
}

var (
	simControl = flag.String("sim.control", "", "only the controls whose name contains this")
	simBudget  = flag.Int("sim.budget", 2000, "how many seeds a control may take")
)

func TestControlEverySafetyTakenOutIsNoticed(t *testing.T) {
	for _, c := range controls {
		if !strings.Contains(c.name, *simControl) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			defer c.set(false)
			for seed := range uint64(*simBudget) {
				c.set(true)
				out := live(t, seed+1, c.settings)
				c.set(false)
				if found := out.Check(); len(found) > 0 {
					t.Logf("seed %d: %v", seed+1, found[0])
					return
				}
			}
			t.Errorf("nobody noticed in %d seeds", *simBudget)
		})
	}
	knob.LateTimer = 0
}
