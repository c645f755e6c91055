//go:build knobs && go1.26

package trace_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/test/knob"
)

// documentControls are the safeties of updates.
var documentControls = []control{
	{1, "a save by key alone", func(on bool) { knob.SaveByKey = on }, plain, "sends finish", "it names no holder"},
	{1, "a save that one node acknowledges", func(on bool) { knob.SaveSoftly = on }, electing, "has the answer to finish", "it is answered before a majority has it"},
	{7, "the election of the reader in place of the writer's", func(on bool) { knob.EpochOfReader = on }, electing, "sends claim", "it drops a holder that is not over"},
	{5, "a claim that the driver sends again", func(on bool) { knob.UpdateRepeated = on }, electing, "sends again claim", "the claim of an update is sent again"},
}

func TestControlEverySafetyOfUpdatesTakenOutIsRefused(t *testing.T) {
	refusesEach(t, documentControls, ofUpdates)
}
