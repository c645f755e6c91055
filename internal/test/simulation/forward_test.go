//go:build go1.26

package simulation_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

var aStep = regexp.MustCompile(`(?m)^ *[0-9.]+ the clock of server [0-9] is stepped`)

// A holder may be dropped while it trusts its lease, and that is all. A control shows that this
// is noticed.
func TestAForwardStepOfAPrimarysClockEndsLeasesEarlyAndDoesNothingElse(t *testing.T) {
	s := plain
	s.Forward = true
	for i := range *simSeeds {
		seed := *simFirst + uint64(i)
		out := live(t, seed, s)
		for _, v := range out.Check() {
			assert.Equal(t, "collateral", v.Check, "seed %d: %v", seed, v)
			assert.Regexp(t, aStep, string(out.Log), "seed %d: %v, though no clock was stepped", seed, v)
		}
	}
}
