//go:build knobs

package simulation_test

import (
	"strings"
	"testing"

	"github.com/mongolock/mongolock/internal/knob"
)

// pathControls are the safeties of path locks, each taken out.
var pathControls = []struct {
	first uint64 // seed that notices
	name  string
	out   *bool
}{
	{1, "a grant without the look after the announcement", &knob.PathWithoutLook},
	{1, "no order between pending locks", &knob.PathWithoutOrder},
	{1, "expiry by a clock that is ahead", &knob.PathByOwnClock},
	{10, "a refresh that revives", &knob.PathRefreshRevives},
	{1, "a release by path", &knob.PathReleaseByPath},
	{41, "what is in the way removed though it has changed", &knob.PathDropWithoutRev},
	{14, "a lock of unknown outcome not removed", &knob.UnknownIsNotHeld},
	{1, "the locks above forgotten", &knob.PathAncestorForgotten},
}

func TestControlEverySafetyOfPathLocksTakenOutIsNoticed(t *testing.T) {
	for _, c := range pathControls {
		if !strings.Contains(c.name, *simControl) {
			continue
		}
		noticed := func(t *testing.T, seed uint64) bool {
			*c.out = true
			out := livePaths(t, seed, plain)
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
