package mongolock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestHandOverIsOneCommand(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		l := acquire(t, c, "k")
		wait := inBackground(t.Context(), c, "k")
		synctest.Wait()
		b.reset()
		release(t, l)
		r := <-wait
		require.NoError(t, r.err)
		require.Greater(t, r.lease.Token(), l.Token())
		assert.Equal(t, 1, b.count("transfer"), "transfers")
		assert.Equal(t, 1, b.total(), "commands")
		time.Sleep(time.Hour)
		assert.NoError(t, r.lease.Err(), "the lease is renewed")
	})
}

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
					onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
						assert.Empty(t, notStarved(t, s, workers, section, feed))
					})
				})
			}
		}
	}
}

// The calls of the eight clients take a while, each a random time.
func TestEightClientsThatReacquireInALoopShareTheKeyFairly(t *testing.T) {
	for _, section := range []time.Duration{0, 3 * time.Millisecond, 40 * time.Millisecond} {
		t.Run(section.String(), func(t *testing.T) {
			assert.Empty(t, inBubble(t, func(t *testing.T) string { return eightThatLoop(t, section, 0) }))
		})
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
func newSlowStore(mem *memstore.Store, least time.Duration) *hookedStore {
	b := newHookedStore(mem)
	trip := func() { time.Sleep(least + rand.N(2*least)) }
	b.hook(func(h *hooks) {
		h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
			trip()
			defer trip()
			return do()
		}
		h.release = func(_ context.Context, _ store.Ref, do func() (bool, error)) (bool, error) {
			trip()
			defer trip()
			return do()
		}
		h.look = func(_ context.Context, _ []string, do func() ([]store.Status, error)) ([]store.Status, error) {
			trip()
			defer trip()
			return do()
		}
	})
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
		if waited := time.Since(start); waited > bound {
			return fmt.Sprintf("waited %v, while the others were granted the key %d times; want at most %v", waited, grants.Load()-before, bound)
		}
		release(t, l)
		time.Sleep(time.Second)
	}
	return ""
}

func TestAClientHandsOverAtMostSixteenTimesInARowWhileAnotherWaits(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		greedy, other := newClient(t, s), newClient(t, s)
		grants, stop := loop(t, greedy, 4, time.Millisecond)
		defer stop()
		time.Sleep(100 * time.Millisecond)
		before := grants.Load()
		wait := inBackground(t.Context(), other, "k")
		r := <-wait
		require.NoError(t, r.err)
		// One holder at the start, one that saw the word first, and sixteen hand-overs.
		assert.GreaterOrEqual(t, grants.Load()-before, int64(10), "grants to the others meanwhile")
		assert.LessOrEqual(t, grants.Load()-before, int64(18), "grants to the others meanwhile")
		time.Sleep(60 * time.Millisecond) // the others leave the key alone for 50 ms
		before = grants.Load()
		release(t, r.lease)
		time.Sleep(time.Millisecond)
		assert.Greater(t, grants.Load(), before, "grants to the others after that")
	})
}

func TestHandOversAreUnlimitedWhileNoOtherClientWaits(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		_, stop := loop(t, c, 2, time.Millisecond)
		time.Sleep(time.Second)
		stop()
		assert.GreaterOrEqual(t, b.count("transfer"), 990, "hand-overs in a second")
		assert.LessOrEqual(t, b.count("acquire"), 2, "claims in a second")
	})
}

func TestACancelDuringAHandOverLeavesTheKeyUsable(t *testing.T) {
	const took = 10 * time.Millisecond
	for _, withSecond := range []bool{true, false} {
		for offset := -took; offset <= 2*took; offset += took / 4 {
			onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
				b.hook(func(h *hooks) {
					h.transfer = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
						time.Sleep(took / 2)
						defer time.Sleep(took / 2)
						return do()
					}
				})
				c := newClient(t, s)
				l := acquire(t, c, "k")
				ctx, cancel := context.WithCancel(t.Context())
				first := inBackground(ctx, c, "k")
				synctest.Wait()
				var second <-chan result
				if withSecond {
					second = inBackground(t.Context(), c, "k")
				}
				time.Sleep(50 * time.Millisecond)
				time.AfterFunc(took+offset, cancel)
				time.Sleep(took)
				release(t, l)
				r := <-first
				if r.err == nil {
					release(t, r.lease)
				} else {
					assert.ErrorIs(t, r.err, context.Canceled, "offset %v", offset)
					assert.Nil(t, r.lease, "offset %v", offset)
				}
				cancel()
				if second != nil {
					r := <-second
					require.NoError(t, r.err, "offset %v", offset)
					release(t, r.lease)
				}
				time.Sleep(100 * time.Millisecond)
				mustBeFree(t, b, "k")
			})
		}
	}
}

func TestTheWaiterIsServedAfterAHandOverOfUnknownOutcome(t *testing.T) {
	for _, applied := range []bool{false, true} {
		onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
			c := newClient(t, s)
			l := acquire(t, c, "k")
			wait := inBackground(t.Context(), c, "k")
			synctest.Wait()
			b.hook(func(h *hooks) {
				h.transfer = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
					if applied {
						_, _ = do()
					}
					return store.Grant{}, errNet
				}
			})
			err := l.Release()
			assert.ErrorIs(t, err, errNet)
			assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
			start := time.Now()
			r := <-wait
			require.NoError(t, r.err)
			require.Greater(t, r.lease.Token(), l.Token())
			tookBetween(t, start, 0, time.Second)
			time.Sleep(time.Hour)
			release(t, l)
			assert.NoError(t, r.lease.Err())
		})
	}
}

func TestAHandOverThatArrivesAfterItsDeadlineIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		c := newClient(t, b)
		l := acquire(t, c, "k")
		wait := inBackground(t.Context(), c, "k", mongolock.TTL(time.Second))
		synctest.Wait()
		b.hook(func(h *hooks) {
			h.transfer = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				defer time.Sleep(2 * time.Second) // longer than the TTL that it grants
				return do()
			}
		})
		release(t, l)
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, r.when, 0, 0)
		release(t, r.lease)
		time.Sleep(time.Second)
		mustBeFree(t, b, "k")
	})
}
