package mongolock_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// The figures of this file are ratios of two things measured turn by turn in one
// run, so that they hold on a machine whose speed drifts. b.N says how many turns.

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

// handOffs passes a token to another goroutine n times, each of which waits for
// the one before to be taken.
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

// compare reports the median over b.N turns of the time that n of a take, over
// that of n of b.
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

// Two goroutines that never let the key rest: every grant but the first comes
// through the local queue.
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

// What 10,000 held leases cost over three seconds in which none is due, and in
// how many goroutines.
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
		used := cpuTime(b)
		<-time.After(span)
		shares = append(shares, float64(cpuTime(b)-used)/float64(span)*100)
	}
	b.ReportMetric(median(shares), "%-of-a-core")
	b.ReportMetric(float64(runtime.NumGoroutine()-before), "goroutines")
	b.ReportMetric(0, "ns/op")
}

func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestAFreePairCostsAtMostSixteenAllocations(t *testing.T) {
	c := benchClient(t)
	if n := testing.AllocsPerRun(1000, func() { pair(t, c) }); n > 16 {
		t.Errorf("an uncontended Acquire and Release make %v allocations, want at most 16", n)
	}
}
