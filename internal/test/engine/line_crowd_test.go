package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// One that polls, and that came when the line was full, never asks again: each read puts its next
// claim off.
func TestOneThatPollsOutsideAFullLineIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
		var places []store.Place
		for i := range store.LineMost {
			places = append(places, standAs(t, mem, store.Exclusive, 1, fmt.Sprint("dead", i), "dead"))
		}
		b := lab.New(mem)
		out := inBackground(t.Context(), newClient(t, b, mongolock.WithoutFeed()), "k", mongolock.TTL(time.Hour))
		time.Sleep(time.Second)
		for _, p := range places {
			_, err := mem.Leave(t.Context(), "k", p)
			require.NoError(t, err)
		}
		release(t, gate)
		// two processes take the key in turns: one of them is in line at each moment
		var over atomic.Bool
		var wg sync.WaitGroup
		var grants atomic.Int64
		for range 3 {
			s := lab.New(mem)
			s.All(trips(5 * time.Millisecond))
			c := newClient(t, s)
			wg.Go(func() {
				for !over.Load() {
					l := acquire(t, c, "k")
					grants.Add(1)
					time.Sleep(100 * time.Millisecond)
					release(t, l)
				}
			})
		}
		start := time.Now()
		select {
		case r := <-out:
			require.NoError(t, r.err)
			release(t, r.lease)
			t.Logf("served after %v", r.when.Sub(start))
			assert.LessOrEqual(t, r.when.Sub(start), 30*time.Second)
		case <-time.After(10 * time.Minute):
			t.Errorf("not served in 10 minutes, while the others had %d grants; its calls: %s", grants.Load(), b.Counts())
		}
		over.Store(true)
		wg.Wait()
		if t.Failed() {
			select {
			case r := <-out:
				release(t, r.lease)
			case <-time.After(time.Hour):
			}
		}
	})
}

// Waiters that give up in an outage: each place has a goroutine of its own that asks.
func TestWaitersThatGiveUpInAnOutageAskLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		holder := newClient(t, mem)
		b := lab.New(mem)
		c := newClient(t, b)
		const n = 1000
		ctx, cancel := context.WithCancel(t.Context())
		var all []<-chan result
		for i := range n {
			acquire(t, holder, fmt.Sprint("k", i), mongolock.TTL(time.Hour))
			all = append(all, inBackground(ctx, c, fmt.Sprint("k", i)))
		}
		time.Sleep(5 * time.Second)
		var under, most atomic.Int64
		b.All(func(ctx context.Context, _ *lab.Call) error {
			most.Store(max(most.Load(), under.Add(1)))
			defer under.Add(-1)
			time.Sleep(100 * time.Millisecond)
			return errors.Join(store.ErrNotApplied, errNet)
		})
		b.Reset()
		cancel()
		for _, r := range all {
			<-r
		}
		time.Sleep(time.Minute)
		t.Logf("in a minute of an outage: %s; at most %d at a time", b.Counts(), most.Load())
		assert.LessOrEqual(t, b.Count(), 500)
		assert.LessOrEqual(t, most.Load(), int64(64))
		b.All(nil)
	})
}

// Permits: a crowd uses all of them.
func TestACrowdUsesAllPermits(t *testing.T) {
	for _, section := range []time.Duration{50 * time.Millisecond, time.Second} {
		t.Run(fmt.Sprint(section), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				var over atomic.Bool
				var wg sync.WaitGroup
				var inside, grants atomic.Int64
				var stores []*lab.Store
				for range 32 {
					s := lab.New(mem)
					s.All(trips(time.Millisecond))
					c := newClient(t, s)
					stores = append(stores, s)
					wg.Go(func() {
						for !over.Load() {
							l := acquire(t, c, "k", mongolock.OneOf(8), mongolock.TTL(time.Hour))
							inside.Add(1)
							grants.Add(1)
							time.Sleep(section)
							inside.Add(-1)
							release(t, l)
						}
					})
				}
				time.Sleep(10 * time.Second)
				before := grants.Load()
				for _, s := range stores {
					s.Reset()
				}
				var sum, n int64
				for range 600 {
					time.Sleep(23 * time.Millisecond)
					all, _ := mem.Look(t.Context(), []string{"k"})
					sum += int64(len(all[0].Holders))
					n++
				}
				calls := 0
				for _, s := range stores {
					calls += s.Count()
				}
				g := grants.Load() - before
				t.Logf("section %v: %d grants in 14 s, %.2f of 8 permits in use, %.2f calls a grant", section, g, float64(sum)/float64(n), float64(calls)/float64(g))
				assert.GreaterOrEqual(t, float64(sum)/float64(n), 6.0, "permits in use")
				over.Store(true)
				wg.Wait()
			})
		})
	}
}

// One whose feed is broken polls, but its place has an address: the others give it a second.
func TestOneWhoseFeedIsBrokenIsServed(t *testing.T) {
	for _, trip := range []time.Duration{5 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond} {
		for _, how := range []string{"feed is broken", "without feed", "feed"} {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				var over atomic.Bool
				var wg sync.WaitGroup
				var grants [6]atomic.Int64
				for i := range 6 {
					s := lab.New(mem)
					s.All(lab.Slow(trip, trip))
					var opts []mongolock.ClientOption
					if i == 0 && how == "feed is broken" {
						s.On(lab.Watch, lab.Fail(errNet))
					}
					if i == 0 && how == "without feed" {
						opts = append(opts, mongolock.WithoutFeed())
					}
					c := newClient(t, s, opts...)
					wg.Go(func() {
						for !over.Load() {
							l := acquire(t, c, "k")
							grants[i].Add(1)
							time.Sleep(2 * time.Second)
							release(t, l)
						}
					})
				}
				time.Sleep(time.Duration(fewer.Of(50)) * time.Minute)
				sum := int64(0)
				for i := range grants {
					sum += grants[i].Load()
				}
				t.Logf("%s, a trip of %v: %d of %d grants", how, 2*trip, grants[0].Load(), sum)
				assert.GreaterOrEqual(t, grants[0].Load(), sum/12, "half of its part")
				over.Store(true)
				wg.Wait()
			})
		}
	}
}

// Each waiter that gives up costs one call that takes its place out of the line, however many give
// up at the same time: whoever leaves tells the first in line, which may have left too.
func TestACrowdThatGivesUpSoonLeavesOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		var asked, left int
		var all sync.WaitGroup
		var stores []*lab.Store
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		for range 16 {
			b := lab.New(mem)
			b.All(trips(time.Millisecond))
			c := newClient(t, b)
			stores = append(stores, b)
			all.Go(func() {
				for ctx.Err() == nil {
					if lease, err := c.Acquire(ctx, "k", mongolock.MaxWait(20*time.Millisecond)); err == nil {
						time.Sleep(5 * time.Millisecond) // virtual: work
						release(t, lease)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
		time.Sleep(10 * time.Second)
		for _, b := range stores {
			asked, left = asked+b.Count(lab.Acquire), left+b.Count(lab.Leave)
			b.All(nil)
		}
		t.Logf("%d claims, and %d places taken out", asked, left)
		assert.Less(t, left, asked)
	})
}
