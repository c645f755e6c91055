package simulation_test

import (
	"bytes"
	"flag"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/mongolock/mongolock/internal/simulation"
)

var (
	simSeeds = flag.Int("sim.seeds", 60, "how many seeds")
	simFirst = flag.Uint64("sim.first", 1, "the first of them")
)

// live runs one seed in a bubble of its own.
func live(t *testing.T, seed uint64, s simulation.Settings) (out *simulation.Outcome) {
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(*testing.T) { out = simulation.Run(seed, s) })
	return out
}

var plain = simulation.Settings{Margin: -1}

func TestNoSeedBreaksAPromise(t *testing.T) {
	for i := range *simSeeds {
		seed := *simFirst + uint64(i)
		out := live(t, seed, plain)
		for _, v := range out.Check() {
			t.Errorf("seed %d: %v", seed, v)
		}
		if t.Failed() {
			t.Logf("%s", out.Log)
			t.FailNow()
		}
	}
}

func TestTheSameSeedGivesTheSameLog(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, b := live(t, seed, plain), live(t, seed, plain)
		if !bytes.Equal(a.Log, b.Log) {
			t.Errorf("seed %d: %s", seed, firstDifference(a.Log, b.Log))
		}
	}
}

func firstDifference(a, b []byte) string {
	x, y := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range min(len(x), len(y)) {
		if !bytes.Equal(x[i], y[i]) {
			return string(x[i]) + "\nand\n" + string(y[i])
		}
	}
	return "one is longer"
}
