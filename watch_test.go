package mongolock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestOnePollReadsAllKeysThatAClientWaitsFor(t *testing.T) {
	onHookedStore(t, func(t *testing.T, b *hookedStore, s store.Store) {
		holder := newClient(t, b.mem)
		c := newClient(t, s, mongolock.WithoutFeed())
		for i := range 100 {
			key := fmt.Sprint(i)
			acquire(t, holder, key)
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			inBackground(ctx, c, key)
			inBackground(ctx, c, key)
		}
		time.Sleep(10 * time.Second)
		var mu sync.Mutex
		var sizes []int
		b.hook(func(h *hooks) {
			h.look = func(_ context.Context, keys []string, do func() ([]store.Status, error)) ([]store.Status, error) {
				mu.Lock()
				defer mu.Unlock()
				sizes = append(sizes, len(keys))
				return do()
			}
		})
		b.reset()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		assert.LessOrEqual(t, b.count("acquire"), 100*3, "claims in a minute, which keep the places")
		assert.GreaterOrEqual(t, b.count("look"), 50, "looks in a minute")
		assert.LessOrEqual(t, b.count("look"), 75, "looks in a minute")
		for _, n := range sizes {
			require.Equal(t, 100, n, "keys per look: %v", sizes)
		}
	})
}

func TestPausesBetweenPollsGrowFromFiftyMillisecondsToASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		acquire(t, newClient(t, b.mem), "k")
		var at []time.Time
		b.hook(func(h *hooks) {
			h.look = func(_ context.Context, _ []string, do func() ([]store.Status, error)) ([]store.Status, error) {
				at = append(at, time.Now())
				return do()
			}
		})
		start := time.Now()
		_, err := newClient(t, b, mongolock.WithoutFeed()).Acquire(t.Context(), "k", mongolock.MaxWait(20*time.Second))
		assert.ErrorIs(t, err, mongolock.ErrHeld)
		last, want := start, 50*time.Millisecond
		for i, when := range at {
			assert.InDelta(t, want, when.Sub(last), float64(want/5), "the pause before look %d", i)
			last, want = when, min(2*want, time.Second)
		}
		assert.GreaterOrEqual(t, len(at), 15, "looks")
	})
}

func TestAHundredWaitersSendAtMostFourCommandsAMinuteWhileTheKeyIsHeld(t *testing.T) {
	onHookedStore(t, func(t *testing.T, b *hookedStore, s store.Store) {
		acquire(t, newClient(t, b.mem), "k")
		c := newClient(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var waits []<-chan result
		for range 100 {
			waits = append(waits, inBackground(ctx, c, "k"))
		}
		time.Sleep(time.Minute)
		b.reset()
		time.Sleep(10 * time.Minute)
		assert.LessOrEqual(t, b.total(), 10*4, "commands in ten minutes: when the holder seen last should have expired")
		cancel()
		for _, w := range waits {
			err := (<-w).err
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, mongolock.ErrHeld)
		}
	})
}

func TestAWakeUpForACancelledHeadReachesTheNextWaiter(t *testing.T) {
	for offset := time.Duration(0); offset <= 40*time.Millisecond; offset += time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			b := newHookedStore(memstore.New())
			b.hook(func(h *hooks) {
				h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
					time.Sleep(10 * time.Millisecond)
					defer time.Sleep(10 * time.Millisecond)
					return do()
				}
			})
			l := acquire(t, newClient(t, b.mem), "k", mongolock.TTL(10*time.Minute))
			c := newClient(t, b)
			ctx, cancel := context.WithCancel(t.Context())
			first := inBackground(ctx, c, "k")
			synctest.Wait()
			second := inBackground(t.Context(), c, "k")
			time.Sleep(time.Second)
			start := time.Now()
			time.AfterFunc(10*time.Millisecond, func() { release(t, l) })
			time.AfterFunc(offset, cancel)
			if r := <-first; r.err == nil {
				release(t, r.lease)
			}
			r := <-second
			require.NoError(t, r.err)
			tookBetween(t, start, 0, 150*time.Millisecond)
			cancel()
		})
	}
}

func TestTheNextWaiterAsksForItselfWhenAHeadGivesUpDuringItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		brief := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: 2 * time.Second}
		l := acquire(t, newClient(t, b.mem), "k")
		c := newClient(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		first := inBackground(ctx, c, "k")
		synctest.Wait()
		second := inBackground(t.Context(), c, "k")
		synctest.Wait()
		b.hook(func(h *hooks) {
			h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				defer time.Sleep(100 * time.Millisecond)
				return do()
			}
		})
		// Another process gets the key between the release and the head's claim, and dies.
		_, _ = b.mem.Release(t.Context(), store.Ending{Ref: store.Ref{Key: "k", ID: l.ID(), Mode: store.Exclusive}})
		seen, err := c.Inspect(t.Context(), "k")
		require.NoError(t, err)
		brief.Pass = seen.Line[0].Place
		_, err = b.mem.Acquire(t.Context(), brief)
		require.NoError(t, err)
		start := time.Now()
		_ = b.mem.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindOffered})
		synctest.Wait()
		cancel()
		assert.ErrorIs(t, (<-first).err, context.Canceled)
		assert.NoError(t, (<-second).err)
		tookBetween(t, start, 2*time.Second, 2300*time.Millisecond)
	})
}

// The hints of a claim save commands: one that is expected to be refused only looks, and one for a
// key that is offered does not.
func TestTheHintsOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		holder, c := newClient(t, b.mem), newClient(t, b)
		l := acquire(t, holder, "k")
		var mu sync.Mutex
		var hints []string
		b.hook(func(h *hooks) {
			h.acquire = func(_ context.Context, c store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				mu.Lock()
				defer mu.Unlock()
				hint := "none"
				switch {
				case c.Offered:
					hint = "offered"
				case c.InLine:
					hint = "in line"
				case c.Held:
					hint = "held"
				}
				hints = append(hints, hint)
				return do()
			}
		})
		sent := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, want, hints, "the claims %s", when)
			hints = nil
		}
		wait := inBackground(t.Context(), c, "k")
		sent("on arrival", "none")
		time.Sleep(31 * time.Second)
		sent("when the place is to be kept", "in line")
		release(t, l)
		sent("after a release", "offered")
		l = (<-wait).lease
		inBackground(t.Context(), holder, "k")
		synctest.Wait()
		release(t, l)
		sent("of the holder", []string(nil)...)
		inBackground(t.Context(), c, "k")
		sent("after a release that found others waiting", "held")
	})
}

// There are four processes with a hundred waiters each, and the holder renews.
func TestEachProcessAsksAtMostThreeTimesAMinuteForAHeldKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		acquire(t, newClient(t, mem), "k")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var processes []*hookedStore
		for range 4 {
			b := newHookedStore(mem)
			c := newClient(t, b)
			for range 100 {
				inBackground(ctx, c, "k")
			}
			processes = append(processes, b)
		}
		time.Sleep(time.Minute)
		for _, b := range processes {
			b.reset()
		}
		time.Sleep(10 * time.Minute)
		for i, b := range processes {
			assert.LessOrEqual(t, b.total(), 31, "calls of process %d in ten minutes", i)
			assert.Equal(t, b.total()-b.count("look"), b.count("acquire"), "claims among the calls of process %d", i)
			assert.LessOrEqual(t, b.count("look"), 3, "looks of process %d, one each time that the feed is opened again", i)
		}
	})
}
