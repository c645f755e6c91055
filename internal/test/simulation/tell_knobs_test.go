//go:build knobs && go1.26

package simulation_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

func init() { faulty = " -tags knobs -overlay=$(go run ./internal/test/controls)" }

var simOut = flag.String("sim.out", "", "tell a history in which this safety is taken out: the name of a control")

// TestASeedIsTold prints the history of a seed as lines of JSON: what the page in docs/play
// runs. Of several seeds it tells the first that breaks a promise, or the last.
func TestASeedIsTold(t *testing.T) {
	c := controlNamed(t, *simOut)
	s := c.with(asked())
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

// controlNamed returns a control, or one that takes nothing out.
func controlNamed(t *testing.T, name string) control {
	t.Helper()
	if name == "" {
		return control{set: func(bool) {}, settings: plain}
	}
	i := slices.IndexFunc(controls, func(c control) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, "no control is called %q", name)
	return controls[i]
}

// with adds to some settings what the control needs.
func (c control) with(s simulation.Settings) simulation.Settings {
	s.Margin, s.Late, s.Unfenced = c.settings.Margin, c.settings.Late, c.settings.Unfenced
	s.Elections, s.Asking = s.Elections || c.settings.Elections, s.Asking || c.settings.Asking
	s.Servers = cmp.Or(c.settings.Servers, s.Servers)
	return s
}

// What a seed means changes with the library. A seed of the page that shows nothing any more is
// replaced by the one that this test names.
func TestControlEverySafetyOfThePageIsNoticedBySeed(t *testing.T) {
	source, err := os.ReadFile("../../../docs/play/safeties.js")
	require.NoError(t, err)
	easy := plain // as the page asks at first
	easy.Users, easy.Steps, easy.Together = 3, 4, true
	found := regexp.MustCompile(`control: "([^"]+)", seed: (\d+)`).FindAllSubmatch(source, -1)
	require.GreaterOrEqual(t, len(found), 5)
	for _, f := range found {
		c := controlNamed(t, string(f[1]))
		c.settings = c.with(easy)
		seed, err := strconv.ParseUint(string(f[2]), 10, 64)
		require.NoError(t, err)
		if !c.noticed(t, seed) {
			for other := uint64(1); ; other++ {
				if other > uint64(*simBudget) || c.noticed(t, other) {
					t.Errorf("seed %d of the page does not notice %q, but %d does", seed, c.name, other)
					break
				}
			}
		}
		assert.Empty(t, live(t, seed, easy).Check(), "seed %d, with the safety", seed)
	}
	knob.LateTimer = 0
}
