package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/cputime"
	"github.com/mongolock/mongolock/store/memstore"
)

// The benchmarks of this file report ratios of two things that are measured by turns in one
// run, so that the ratios hold on a machine whose speed drifts. b.N is the number of turns.

func benchClient(tb testing.TB, opts ...mongolock.ClientOption) *mongolock.Client {
	tb.Helper()
	c, err := mongolock.NewWithStore(memstore.New(), opts...)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func pair(tb testing.TB, c *mongolock.Client) {
	lease, err := c.Acquire(tb.Context(), "key")
	if err == nil {
		err = lease.Release()
	}
	if err != nil { // not require, whose call of Helper would be measured too
		tb.Fatal(err)
	}
}

// handOffs sends to another goroutine n times over an unbuffered channel.
func handOffs(n int) {
	ch := make(chan struct{})
	go func() {
		for range n {
			<-ch
		}
	}()
	for range n {
		ch <- struct{}{}
	}
}

// compare reports the median, over b.N turns, of the time that f takes for n runs divided
// by the time that base takes for n runs.
func compare(b *testing.B, name string, n int, f, base func(n int)) {
	b.Helper()
	f(n)
	base(n)
	var ratios, each []float64
	for b.Loop() {
		took := timed(f, n)
		ratios = append(ratios, took/timed(base, n))
		each = append(each, took)
	}
	b.ReportMetric(median(ratios), name)
	b.ReportMetric(median(each)*1e9, "ns/each")
	b.ReportMetric(0, "ns/op")
}

func timed(f func(n int), n int) (seconds float64) {
	runtime.GC()
	start := time.Now()
	f(n)
	return time.Since(start).Seconds() / float64(n)
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

func BenchmarkPairOverHandOff(b *testing.B) {
	c := benchClient(b)
	compare(b, "x-handoff", 20_000, func(n int) {
		for range n {
			pair(b, c)
		}
	}, handOffs)
}

func BenchmarkPair(b *testing.B) {
	c := benchClient(b)
	b.ReportAllocs()
	for b.Loop() {
		pair(b, c)
	}
}

// Two goroutines compete for the key without a pause, so every grant but the first is a
// hand-over inside the process.
func BenchmarkHandOverOverPair(b *testing.B) {
	c := benchClient(b)
	compare(b, "x-pair", 20_000, func(n int) {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for range n / 2 {
					pair(b, c)
				}
			})
		}
		wg.Wait()
	}, func(n int) {
		for range n {
			pair(b, c)
		}
	})
}

// This measures the CPU time of 10,000 held leases over three seconds in which no renewal
// is due, and their goroutines.
func BenchmarkTenThousandHeld(b *testing.B) {
	c := benchClient(b, mongolock.TTL(time.Hour))
	before := runtime.NumGoroutine()
	for i := range 10_000 {
		_, err := c.Acquire(b.Context(), fmt.Sprint("key-", i))
		require.NoError(b, err)
	}
	runtime.GC()
	var shares []float64
	for b.Loop() {
		const span = 3 * time.Second
		used := cputime.Used(b)
		<-time.After(span)
		shares = append(shares, float64(cputime.Used(b)-used)/float64(span)*100)
	}
	b.ReportMetric(median(shares), "%-of-a-core")
	b.ReportMetric(float64(runtime.NumGoroutine()-before), "goroutines")
	b.ReportMetric(0, "ns/op")
}

func TestAFreePairCostsAtMostTwentyFiveAllocations(t *testing.T) {
	c := benchClient(t)
	n := testing.AllocsPerRun(1000, func() { pair(t, c) })
	assert.LessOrEqual(t, n, 25.0, "allocations of an uncontended Acquire and Release")
}

// A quiet observer does nothing.
type quiet struct{}

func (quiet) Begin(ctx context.Context, _ mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	return ctx, func(mongolock.Outcome) {}
}

// A pair in memory, without and with an observer: what it costs.
func BenchmarkAFreePairWithAnObserver(b *testing.B) {
	for name, opts := range map[string][]mongolock.ClientOption{"none": nil, "quiet": {mongolock.WithObserver(quiet{})}} {
		b.Run(name, func(b *testing.B) {
			client := newClient(b, memstore.New(), opts...)
			for b.Loop() {
				lease, err := client.Acquire(b.Context(), "k")
				if err != nil {
					b.Fatal(err)
				}
				_ = lease.Release()
			}
		})
	}
}

func BenchmarkStatsOf10000Leases(b *testing.B) {
	client := newClient(b, memstore.New())
	for i := range 10_000 {
		_, err := client.Acquire(b.Context(), fmt.Sprint(i))
		require.NoError(b, err)
	}
	for b.Loop() {
		if client.Stats().Held != 10_000 {
			b.Fatal("a lease is missing")
		}
	}
}
