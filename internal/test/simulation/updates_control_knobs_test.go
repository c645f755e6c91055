//go:build knobs && go1.26

package simulation_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// updateControls are the safeties of updates. A claim that the driver sends again was noticed at
// seed 2524, which tells another story now; doclock's own control shows that fault.
var updateControls = []safety{
	{1, "a save by key alone", &knob.SaveByKey, plain},
	{1, "a save that one node acknowledges", &knob.SaveSoftly, elections},
}

func TestControlEverySafetyOfUpdatesTakenOutIsNoticed(t *testing.T) {
	subject(simulation.RunUpdates).needs(t, updateControls)
}
