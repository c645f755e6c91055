//go:build go1.26

package simulation_test

import (
	"runtime"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/simulation"
)

// liveUpdates runs one seed of updates in a bubble of its own.
func liveUpdates(t *testing.T, seed uint64, s simulation.Settings) (out *simulation.Outcome) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	cryptotest.SetGlobalRandom(t, seed)
	defer simulation.Seeded(seed)()
	synctest.Test(t, func(*testing.T) { out = simulation.RunUpdates(seed, s) })
	return out
}

func TestNoSeedLosesAnUpdate(t *testing.T) {
	began := time.Now()
	sum := summary{faults: map[string]int{}}
	for i := range *simSeeds {
		seed := *simFirst + uint64(i)
		out := liveUpdates(t, seed, asked())
		found := out.Check()
		if *simLog || len(found) > 0 {
			t.Logf("%s", out.Log)
		}
		if !assert.Empty(t, found, "seed %d", seed) {
			return
		}
		sum.add(out)
	}
	t.Log(sum.String())
	t.Logf("%d seeds from %d in %v", *simSeeds, *simFirst, time.Since(began).Round(time.Millisecond))
}
