package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// loop lets n goroutines of a client acquire and release the key in a loop until stop is
// called, and counts the grants.
func loop(t *testing.T, c *mongolock.Client, n int, section time.Duration) (grants *atomic.Int64, stop func()) {
	var over atomic.Bool
	var wg sync.WaitGroup
	grants = new(atomic.Int64)
	for range n {
		wg.Go(func() {
			for !over.Load() {
				l, err := c.Acquire(t.Context(), "k")
				if !assert.NoError(t, err) {
					return
				}
				grants.Add(1)
				time.Sleep(section)
				release(t, l)
			}
		})
	}
	return grants, func() {
		over.Store(true)
		wg.Wait()
	}
}

func TestAClientThatReacquiresInALoopDoesNotStarveAnother(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 10} {
		for _, section := range []time.Duration{5 * time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond} {
			for _, feed := range []bool{true, false} {
				t.Run(fmt.Sprintf("%d workers, %v, feed %v", workers, section, feed), func(t *testing.T) {
					lab.Test(t, func(t *testing.T, b *lab.Store) {
						assert.Empty(t, notStarved(t, b, workers, section, feed))
					})
				})
			}
		}
	}
}

// The calls of the eight clients take a while, each a random time.
func TestEightClientsThatReacquireInALoopShareTheKeyFairly(t *testing.T) {
	for _, section := range []time.Duration{0, 3 * time.Millisecond, 40 * time.Millisecond} {
		for near := range 2 {
			t.Run(fmt.Sprintf("%v, %d near", section, near), func(t *testing.T) {
				assert.Empty(t, inBubble(t, func(t *testing.T) string { return eightThatLoop(t, section, near) }))
			})
		}
	}
}

// eightThatLoop lets eight clients reacquire the key in a loop, and reports a violation if
// one of them gets much less than another. The calls of the first clients, near of them,
// take a tenth of the time.
func eightThatLoop(t *testing.T, section time.Duration, near int) (violation string) {
	mem := memstore.New()
	var grants []*atomic.Int64
	var stops []func()
	for i := range 8 {
		trip := time.Millisecond
		if i < near {
			trip /= 10
		}
		n, stop := loop(t, newClient(t, newSlowStore(mem, trip)), 1, section)
		grants, stops = append(grants, n), append(stops, stop)
	}
	time.Sleep(10 * time.Second)
	var each []int64
	for _, n := range grants {
		each = append(each, n.Load())
	}
	var all sync.WaitGroup // each stop waits for its own client, which may wait for another
	for _, stop := range stops {
		all.Go(stop)
	}
	all.Wait()
	slices.Sort(each)
	t.Logf("grants %v", each)
	if each[0]*3 < each[7] || each[0] < 10 {
		return fmt.Sprintf("one client was granted the key %d times, another %d times", each[0], each[7])
	}
	return ""
}

// newSlowStore returns a store to which each call takes a trip there and a trip back, each
// between least and three times least.
func newSlowStore(mem *memstore.Store, least time.Duration) *lab.Store {
	b := lab.New(mem)
	for _, op := range []lab.Op{lab.Acquire, lab.Release, lab.Look} {
		b.On(op, trips(least))
	}
	return b
}

// notStarved lets a client wait for a key that the workers of another client acquire in a
// loop, and reports a violation if it waits for too long.
func notStarved(t *testing.T, s store.Store, workers int, section time.Duration, feed bool) (violation string) {
	var opts []mongolock.ClientOption
	bound := 100*time.Millisecond + 3*section + 100*time.Millisecond
	if !feed {
		opts = append(opts, mongolock.WithoutFeed())
		bound = 5 * time.Second // a look has to fall into the 50 ms for which the others leave the key alone
	}
	greedy, other := newClient(t, s, opts...), newClient(t, s, opts...)
	grants, stop := loop(t, greedy, workers, section)
	defer stop()
	time.Sleep(time.Second)
	for range 5 {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		before := grants.Load()
		l, err := other.Acquire(ctx, "k")
		cancel()
		if err != nil {
			return fmt.Sprintf("starved, while the others were granted the key %d times: %v", grants.Load()-before, err)
		}
		waited, meanwhile := time.Since(start), grants.Load()-before
		release(t, l) // or stop waits for ever
		if waited > bound {
			return fmt.Sprintf("waited %v, while the others were granted the key %d times; want at most %v", waited, meanwhile, bound)
		}
		time.Sleep(time.Second)
	}
	return ""
}
