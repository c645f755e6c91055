//go:build knobs && go1.26

package simulation_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// updateControls are the safeties of updates.
var updateControls = []safety{
	{1, "a save by key alone", &knob.SaveByKey, plain},
	{1, "a save that one node acknowledges", &knob.SaveSoftly, elections},
	{2524, "a claim that the driver sends again", &knob.UpdateRepeated, elections},
}

func TestControlEverySafetyOfUpdatesTakenOutIsNoticed(t *testing.T) {
	subject(simulation.RunUpdates).needs(t, updateControls)
}
