package mongolock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
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

// A breakableFeed is a hookedStore with a feed that can be broken and repaired.
type breakableFeed struct {
	*hookedStore
	mu      sync.Mutex    // protects what follows
	broken  error         // what Watch and Notify answer
	cut     chan struct{} // closed to end the watches that are open
	watched int           // calls of Watch
}

func newBreakableFeed(b *hookedStore, broken error) *breakableFeed {
	return &breakableFeed{hookedStore: b, broken: broken, cut: make(chan struct{})}
}

func (f *breakableFeed) Notify(ctx context.Context, n store.Notice) error {
	if f.isBroken() != nil {
		return f.isBroken()
	}
	return f.mem.Notify(ctx, n)
}

func (f *breakableFeed) Watch(ctx context.Context) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		f.mu.Lock()
		broken, cut := f.broken, f.cut
		f.watched++
		f.mu.Unlock()
		if broken != nil {
			yield(store.Notice{}, broken)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-cut:
				cancel()
			case <-ctx.Done():
			}
		}()
		for n := range f.mem.Watch(ctx) {
			if !yield(n, nil) {
				return
			}
		}
		if err := f.isBroken(); err != nil {
			yield(store.Notice{}, err)
		}
	}
}

func (f *breakableFeed) isBroken() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// failWith ends all watches and refuses new ones. With nil the feed works again.
func (f *breakableFeed) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
	if err != nil {
		close(f.cut)
		f.cut = make(chan struct{})
	}
}

func TestWaitersAreServedWithAndWithoutAWorkingFeed(t *testing.T) {
	for name, broken := range map[string]error{
		"works": nil, "unsupported": fmt.Errorf("no feed: %w", errors.ErrUnsupported), "broken": errNet,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newBreakableFeed(newHookedStore(memstore.New()), broken)
				one, two := newClient(t, f), newClient(t, f)
				for range 5 {
					l := acquire(t, one, "k")
					wait := inBackground(t.Context(), two, "k")
					time.Sleep(5 * time.Minute)
					start := time.Now()
					release(t, l)
					r := <-wait
					require.NoError(t, r.err)
					tookBetween(t, start, 0, 1200*time.Millisecond)
					release(t, r.lease)
				}
				if errors.Is(broken, errors.ErrUnsupported) {
					assert.Equal(t, 1, f.watched, "calls of Watch on a store without a feed")
				}
			})
		})
	}
}

func TestWaitersAreServedWhenTheFeedFailsAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBreakableFeed(newHookedStore(memstore.New()), nil)
		one, two := newClient(t, f), newClient(t, f)
		for range 20 {
			l := acquire(t, one, "k")
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(10 * time.Second)
			f.failWith(errNet)
			time.Sleep(7 * time.Second)
			f.failWith(nil)
			start := time.Now()
			release(t, l)
			r := <-wait
			require.NoError(t, r.err)
			tookBetween(t, start, 0, 1200*time.Millisecond)
			release(t, r.lease)

			l = acquire(t, one, "k") // the feed works again, and is used
			wait = inBackground(t.Context(), two, "k")
			time.Sleep(10 * time.Second)
			start = time.Now()
			release(t, l)
			r = <-wait
			tookBetween(t, start, 0, 0)
			release(t, r.lease)
		}
	})
}

func TestAReleaseWhileTheFeedIsBrokenIsSeenWhenItWorksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBreakableFeed(newHookedStore(memstore.New()), nil)
		one, two := newClient(t, f), newClient(t, f)
		l := acquire(t, one, "k")
		wait := inBackground(t.Context(), two, "k")
		time.Sleep(10 * time.Second)
		f.hook(func(h *hooks) { // polls do not help either
			h.look = func(context.Context, []string, func() ([]store.Status, error)) ([]store.Status, error) {
				return nil, errNet
			}
		})
		f.failWith(errNet)
		time.Sleep(time.Second)
		release(t, l)
		time.Sleep(time.Second)
		f.failWith(nil)
		back := time.Now()
		assert.NoError(t, (<-wait).err)
		tookBetween(t, back, 0, 7*time.Second)
	})
}

// A flappingFeed is a store whose feed breaks once it has been open for lasts.
type flappingFeed struct {
	*hookedStore
	lasts   atomic.Int64 // a time.Duration
	watched atomic.Int64
}

func (f *flappingFeed) Notify(ctx context.Context, n store.Notice) error { return f.mem.Notify(ctx, n) }

func (f *flappingFeed) Watch(ctx context.Context) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		f.watched.Add(1)
		if !yield(store.Notice{}, nil) {
			return
		}
		select {
		case <-time.After(time.Duration(f.lasts.Load())):
			yield(store.Notice{}, errNet)
		case <-ctx.Done():
		}
	}
}

func TestAFlappingFeedIsReopenedWithGrowingPausesAndLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flappingFeed{hookedStore: newHookedStore(memstore.New())}
		var mu sync.Mutex
		var text bytes.Buffer
		logged := func() int {
			mu.Lock()
			defer mu.Unlock()
			return strings.Count(text.String(), "interrupted")
		}
		log := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return text.Write(p)
		}), nil))
		l := acquire(t, newClient(t, f.mem), "k")
		c := newClient(t, f, mongolock.WithLogger(log))
		wait := inBackground(t.Context(), c, "k")
		time.Sleep(10 * time.Minute)
		assert.LessOrEqual(t, f.watched.Load(), int64(10*60/4+10), "calls of Watch in ten minutes")
		assert.GreaterOrEqual(t, f.watched.Load(), int64(10*60/7), "calls of Watch in ten minutes")
		assert.Equal(t, 1, logged(), "log lines")
		f.lasts.Store(int64(time.Minute)) // the feed works for a minute, so its next failure is logged
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 2, logged(), "log lines")
		start := time.Now()
		release(t, l)
		r := <-wait
		tookBetween(t, start, 0, 1200*time.Millisecond)
		release(t, r.lease)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestOnePollReadsAllKeysThatAClientWaitsFor(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
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
		assert.Zero(t, b.count("acquire"), "claims in a minute")
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
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
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

func TestAnIdleFeedIsClosedAndOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBreakableFeed(newHookedStore(memstore.New()), nil)
		one, two := newClient(t, f), newClient(t, f)
		for i := 1; i <= 3; i++ {
			l := acquire(t, one, "k")
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(time.Second)
			release(t, l)
			r := <-wait
			release(t, r.lease)
			assert.Equal(t, i, f.watched, "calls of Watch")
			time.Sleep(time.Duration(i) * 29 * time.Second) // shorter than the idle time at first, then longer
			if i == 1 {
				l := acquire(t, one, "k")
				wait := inBackground(t.Context(), two, "k")
				time.Sleep(time.Second)
				release(t, l)
				release(t, (<-wait).lease)
				assert.Equal(t, 1, f.watched, "calls of Watch before the feed was idle for long")
				time.Sleep(time.Minute)
			}
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
		_, _ = b.mem.Release(t.Context(), store.Ref{Key: "k", ID: l.ID(), Mode: store.Exclusive}, 0)
		_, _ = b.mem.Acquire(t.Context(), brief)
		start := time.Now()
		_ = b.mem.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindFreed})
		synctest.Wait()
		cancel()
		assert.ErrorIs(t, (<-first).err, context.Canceled)
		assert.NoError(t, (<-second).err)
		tookBetween(t, start, 2*time.Second, 2300*time.Millisecond)
	})
}

// Claim.Held tells the store that the key is expected to be held: the claim then costs one
// command, where a claim that is refused costs two.
func TestAClaimExpectsAHeldKeyUnlessItWasFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		holder, c := newClient(t, b.mem), newClient(t, b)
		l := acquire(t, holder, "k")
		var mu sync.Mutex
		var held []bool
		b.hook(func(h *hooks) {
			h.acquire = func(_ context.Context, c store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				mu.Lock()
				defer mu.Unlock()
				held = append(held, c.Held)
				return do()
			}
		})
		sent := func(when string, want ...bool) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, want, held, "whether the claims %s expected a held key", when)
			held = nil
		}
		wait := inBackground(t.Context(), c, "k")
		sent("before the feed was open (afterwards the key is only read)", false)
		time.Sleep(35 * time.Second)
		sent("when the holder should have expired", true)
		_ = b.mem.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindFreed})
		sent("after a wake-up", false)
		release(t, l)
		sent("after a release", false)
		release(t, (<-wait).lease)
	})
}

func TestAClientWithoutTheFeedAnnouncesItsReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHookedStore(memstore.New())
		polls, other := newClient(t, s, mongolock.WithoutFeed()), newClient(t, s)
		l := acquire(t, polls, "k")
		wait := inBackground(t.Context(), other, "k")
		time.Sleep(10 * time.Second)
		start := time.Now()
		release(t, l)
		release(t, (<-wait).lease)
		tookBetween(t, start, 0, 0)
	})
}

// A client that cannot watch the feed goes on announcing its releases, until an
// announcement is refused.
func TestAClientAnnouncesReleasesOnAFeedThatItCannotWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBreakableFeed(newHookedStore(memstore.New()), nil)
		announcer := &announceOnlyStore{Store: f.hookedStore, feed: f.mem}
		one, two := newClient(t, announcer), newClient(t, f)
		for i := range 3 {
			first := acquire(t, two, "k")
			wait := inBackground(t.Context(), one, "k")
			time.Sleep(10 * time.Second)
			release(t, first)
			r := <-wait
			tookBetween(t, r.when, 0, 0)
			again := inBackground(t.Context(), two, "k")
			time.Sleep(10 * time.Second)
			start := time.Now()
			release(t, r.lease)
			release(t, (<-again).lease)
			tookBetween(t, start, 0, 0)
			assert.Equal(t, 1, announcer.watched, "calls of Watch by round %d", i)
		}
		announcer.refuse = true
		sent := announcer.sent
		for range 3 {
			l := acquire(t, one, "k")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = two.Acquire(ctx, "k")
			cancel()
			release(t, l)
			synctest.Wait()
		}
		assert.Equal(t, sent+1, announcer.sent, "announcements: none follows the refused one")
	})
}

// An announceOnlyStore takes notices until it refuses them, and cannot be watched.
type announceOnlyStore struct {
	store.Store
	feed          store.Feed
	refuse        bool
	watched, sent int
}

func (u *announceOnlyStore) Notify(ctx context.Context, n store.Notice) error {
	u.sent++
	if u.refuse {
		return errors.ErrUnsupported
	}
	return u.feed.Notify(ctx, n)
}

func (u *announceOnlyStore) Watch(context.Context) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		u.watched++
		yield(store.Notice{}, errors.ErrUnsupported)
	}
}

func TestUncontendedTrafficDoesNotKeepTheFeedOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBreakableFeed(newHookedStore(memstore.New()), nil)
		one, two := newClient(t, f), newClient(t, f)
		for want := 1; want <= 2; want++ {
			l := acquire(t, one, "k")
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(time.Second)
			release(t, l)
			release(t, (<-wait).lease)
			assert.Equal(t, want, f.watched, "calls of Watch")
			for range 100 {
				time.Sleep(time.Second)
				release(t, acquire(t, two, "j"))
			}
		}
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
			assert.Equal(t, b.total(), b.count("acquire"), "claims among the calls of process %d", i)
		}
	})
}
