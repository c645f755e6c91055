package mongolock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A rival may ask the holder between the store's grant and its answer.
func TestANoticeThatComesBeforeTheGrantIsAnsweredCounts(t *testing.T) {
	whereCallsMayBlock(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c, other := newClient(t, s), newClient(t, b.mem)
		hearing(t, c)
		var wait <-chan result
		b.hook(func(h *hooks) {
			h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				g, err := do()
				if wait == nil {
					wait = inBackground(t.Context(), other, "k")
				}
				time.Sleep(time.Second) // virtual: the answer is on its way, and the rival asks meanwhile
				return g, err
			}
		})
		l := acquire(t, c, "k", lingering)
		start := time.Now()
		release(t, l)
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, start, 0, 10*time.Millisecond) // a claim that comes a moment before the release looks again after 5 ms
	})
}

// While the feed is broken no waiter can ask. So the keys that were kept are freed, and no key is kept
// until a lease was claimed under a feed that has told of everything since.
func TestNothingIsKeptFromTheMomentThatTheFeedBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBreakableFeed(newHookedStore(memstore.New()), nil)
		c := newClient(t, f)
		keep(t, c)
		inUse := acquire(t, c, "in use", lingering)
		f.failWith(errNet)
		synctest.Wait()
		mustBeFree(t, f, "k")
		assert.Zero(t, c.Stats().Idle)

		f.failWith(nil)
		time.Sleep(10 * time.Second) // virtual: until the feed is open again
		require.True(t, inside.Look(c, "k").Listening)
		release(t, inUse)
		mustBeFree(t, f, "in use") // who asked for it meanwhile was not heard

		release(t, acquire(t, c, "k", lingering))
		mustBeHeld(t, f, "k")
	})
}

// An empty notice stands for notices that were missed.
func TestLingeringKeysAreFreedWhenNoticesWereMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		c := newClient(t, mem)
		keep(t, c)
		require.NoError(t, mem.Notify(t.Context(), store.Notice{}))
		synctest.Wait()
		assert.Zero(t, c.Stats().Idle)
		mustBeFree(t, mem, "k")
	})
}

// The rival of this test cannot send its notice: it is served when the time of the key is over.
func TestWithoutItsNoticeARivalWaitsNoLongerThanTheKeyIsKept(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s) // whose renewals are further apart than the key is kept
		keep(t, c)
		mute := newBreakableFeed(b, errors.New("refused"))
		start := time.Now()
		release(t, acquire(t, newClient(t, mute), "k"))
		tookBetween(t, start, 9900*time.Millisecond, 11250*time.Millisecond) // it polls, every 0.8 to 1.2 s
	})
}

// A line counts for the waiters of the holder's own process, too: they get the key a few times,
// and then it is the others' turn.
func TestWaitersOfTheSameProcessDoNotKeepAnotherOut(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c, other := newClient(t, s), newClient(t, s)
		hearing(t, c)
		stop := make(chan struct{})
		ended := make(chan int)
		for range 3 {
			go func() {
				n := 0
				for {
					select {
					case <-stop:
						ended <- n
						return
					default:
					}
					l, err := c.Acquire(t.Context(), "k", lingering)
					if !assert.NoError(t, err) {
						ended <- n
						return
					}
					n++
					time.Sleep(time.Millisecond) // virtual: work
					assert.NoError(t, l.Release())
				}
			}()
		}
		time.Sleep(time.Second) // virtual: they have it for themselves
		start := time.Now()
		l, err := other.Acquire(t.Context(), "k", mongolock.MaxWait(time.Minute))
		require.NoError(t, err)
		tookBetween(t, start, 0, 200*time.Millisecond)
		release(t, l)
		close(stop)
		total := <-ended + <-ended + <-ended
		assert.Greater(t, total, 900, "leases of the others")
	})
}
