//go:build knobs

package simulation_test

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var simOut = flag.String("sim.out", "", "tell a history in which this safety is taken out: the name of a control")

// TestASeedIsTold prints the history of a seed as lines of JSON: what the page in docs/play
// runs. Of several seeds it tells the first that breaks a promise, or the last.
func TestASeedIsTold(t *testing.T) {
	c := control{set: func(bool) {}, settings: plain}
	if *simOut != "" {
		i := slices.IndexFunc(controls, func(c control) bool { return c.name == *simOut })
		require.GreaterOrEqual(t, i, 0, "no control is called %q", *simOut)
		c = controls[i]
	}
	s := asked()
	s.Margin, s.Late, s.Unfenced = c.settings.Margin, c.settings.Late, c.settings.Unfenced
	s.Elections = s.Elections || c.settings.Elections
	if c.settings.Servers != "" {
		s.Servers = c.settings.Servers
	}
	for seed := *simFirst; ; seed++ {
		c.set(true)
		out := live(t, seed, s)
		c.set(false)
		if len(out.Check()) > 0 || seed+1 >= *simFirst+uint64(*simSeeds) {
			require.NoError(t, out.Tell(os.Stdout))
			return
		}
		require.NoError(t, json.NewEncoder(os.Stdout).Encode(map[string]uint64{"passed": seed}))
	}
}
