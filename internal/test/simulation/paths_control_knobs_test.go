//go:build knobs && go1.26

package simulation_test

import (
	"strings"
	"testing"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// elections has clocks far apart, and many elections.
var elections = simulation.Settings{Margin: -1, Elections: true}

// A safety is taken out by a switch, and then a seed notices.
type safety struct {
	first    uint64 // the first seed that notices
	name     string
	out      *bool
	settings simulation.Settings
}

// pathControls are the safeties of path locks.
var pathControls = []safety{
	{1, "a grant without the look after it was added", &knob.PathWithoutLook, plain},
	{1, "a grant beside a lock that was added a moment ago", &knob.PathDoubtIgnored, plain},
	{1, "expiry by a clock that is ahead", &knob.PathByOwnClock, plain},
	{2, "a refresh that revives", &knob.PathRefreshRevives, plain},
	{1146, "a refresh that goes on when its caller has left", &knob.PathRefreshAbandoned, elections},
	{2, "a release by path", &knob.PathReleaseByPath, plain},
	{236, "what is in the way removed though it has changed", &knob.PathDropWithoutRev, elections},
	{5, "the election of the reader in place of the writer's", &knob.EpochOfReader, elections},
	{16, "a lock of unknown outcome not removed", &knob.UnknownIsNotHeld, plain},
	{1, "the locks above forgotten", &knob.PathAncestorForgotten, plain},
}

func TestControlEverySafetyOfPathLocksTakenOutIsNoticed(t *testing.T) {
	subject(simulation.RunPaths).needs(t, pathControls)
}

// needs shows of each safety that without it a promise is broken.
func (run subject) needs(t *testing.T, controls []safety) {
	for _, c := range controls {
		if !strings.Contains(c.name, *simControl) {
			continue
		}
		noticed := func(t *testing.T, seed uint64) bool {
			*c.out = true
			out := run.live(t, seed, c.settings)
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
