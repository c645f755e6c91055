package mongolock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
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

// A breakableFeed is a bent store with a feed that can be broken.
type breakableFeed struct {
	*hookedStore
	mu      sync.Mutex
	broken  error // what Watch answers
	cut     chan struct{}
	watched int
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

// die ends all watches and refuses new ones; nil brings the feed back.
func (f *breakableFeed) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
	if err != nil {
		close(f.cut)
		f.cut = make(chan struct{})
	}
}

func TestWaitersAreServedHoweverTheFeedIs(t *testing.T) {
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
				if errors.Is(broken, errors.ErrUnsupported) && f.watched != 1 {
					t.Errorf("asked %d times for a feed that there is not", f.watched)
				}
			})
		})
	}
}

func TestAFeedThatDiesAndComesBackLosesNobody(t *testing.T) {
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

			l = acquire(t, one, "k") // and when it is back, it is used
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

func TestAReleaseWhileTheFeedIsAwayIsSeenWhenItIsBack(t *testing.T) {
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

// A flappingFeed is a feed that opens, and breaks as long as firm has passed.
type flappingFeed struct {
	*hookedStore
	firm    atomic.Int64
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
		case <-time.After(time.Duration(f.firm.Load())):
			yield(store.Notice{}, errNet)
		case <-ctx.Done():
		}
	}
}

func TestAFlappingFeedIsTriedEverMoreSlowlyAndComplainedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flappingFeed{hookedStore: newHookedStore(memstore.New())}
		var mu sync.Mutex
		var text bytes.Buffer
		said := func() int {
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
		if n := f.watched.Load(); n > 10*60/4+10 || n < 10*60/7 || said() != 1 {
			t.Errorf("tried %d times in ten minutes, complained of %d times", n, said())
		}
		f.firm.Store(int64(time.Minute)) // it holds for a while, and what then happens is news
		time.Sleep(2 * time.Minute)
		if said() != 2 {
			t.Errorf("complained of %d times", said())
		}
		start := time.Now()
		release(t, l)
		r := <-wait
		tookBetween(t, start, 0, 1200*time.Millisecond)
		release(t, r.lease)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestOnePollLooksAtAllKeysOfTheProcess(t *testing.T) {
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
		if b.count("acquire") > 0 || b.count("look") < 50 || b.count("look") > 75 {
			t.Errorf("%d looks and %d claims in a minute", b.count("look"), b.count("acquire"))
		}
		for _, n := range sizes {
			if n != 100 {
				t.Fatalf("keys per look: %v", sizes)
			}
		}
	})
}

func TestPollsGoFromFiftyMillisecondsToASecond(t *testing.T) {
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
			if d := when.Sub(last); d < want*4/5 || d > want*6/5 {
				t.Errorf("look %d came %v after the one before, want about %v", i, d, want)
			}
			last, want = when, min(2*want, time.Second)
		}
		if len(at) < 15 {
			t.Errorf("%d looks", len(at))
		}
	})
}

func TestAHundredWaitersCostNextToNothingWhileTheKeyIsHeld(t *testing.T) {
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
		if b.total() > 10*4 { // when the holder seen last should have run out
			t.Errorf("%d commands in ten minutes", b.total())
		}
		cancel()
		for _, w := range waits {
			mustMatch(t, (<-w).err, context.Canceled, mongolock.ErrHeld)
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
			if f.watched != i {
				t.Errorf("watched %d times, want %d", f.watched, i)
			}
			time.Sleep(time.Duration(i) * 29 * time.Second) // short of it, past it
			if i == 1 {
				l := acquire(t, one, "k")
				wait := inBackground(t.Context(), two, "k")
				time.Sleep(time.Second)
				release(t, l)
				release(t, (<-wait).lease)
				if f.watched != 1 {
					t.Error("opened again before it was idle for long")
				}
				time.Sleep(time.Minute)
			}
		}
	})
}

func TestACancelledHeadDoesNotEatAWakeUp(t *testing.T) {
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

func TestTheNextInLineLooksForItselfWhenAHeadLeavesWithItsClaimUnderWay(t *testing.T) {
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
		// A third party slips in between the release and the head's claim, and dies.
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

// A look at a key that nobody said was freed tells the store so: it then costs one
// command, where a claim that is refused costs two.
func TestOnlyALookThatNothingCallsForIsCalledOne(t *testing.T) {
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
		told := func(what string, want ...bool) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(held, want) {
				t.Errorf("%s: claims that expect a held key: %v, want %v", what, held, want)
			}
			held = nil
		}
		wait := inBackground(t.Context(), c, "k")
		told("the first: when the feed is open the key is only read", false)
		time.Sleep(35 * time.Second)
		told("when the holder should have run out", true)
		_ = b.mem.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindFreed})
		told("after a wake-up", false)
		release(t, l)
		told("after a release", false)
		release(t, (<-wait).lease)
	})
}

func TestWhoDoesNotListenAnnouncesAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHookedStore(memstore.New())
		deaf, other := newClient(t, s, mongolock.WithoutFeed()), newClient(t, s)
		l := acquire(t, deaf, "k")
		wait := inBackground(t.Context(), other, "k")
		time.Sleep(10 * time.Second)
		start := time.Now()
		release(t, l)
		release(t, (<-wait).lease)
		tookBetween(t, start, 0, 0)
	})
}

// What keeps a client from listening need not keep it from being heard; only a
// refusal to announce does.
func TestAFeedThatCannotBeWatchedIsAnnouncedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBreakableFeed(newHookedStore(memstore.New()), nil)
		mute := &announceOnlyStore{Store: f.hookedStore, feed: f.mem}
		one, two := newClient(t, mute), newClient(t, f)
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
			if mute.watched != 1 {
				t.Errorf("round %d: asked %d times for a feed that there is not", i, mute.watched)
			}
		}
		mute.refuse = true
		sent := mute.sent
		for range 3 {
			l := acquire(t, one, "k")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = two.Acquire(ctx, "k")
			cancel()
			release(t, l)
			synctest.Wait()
		}
		if mute.sent != sent+1 {
			t.Errorf("announced %d times after it was refused", mute.sent-sent-1)
		}
	})
}

// An unwatched store takes notices, until it refuses, and yields none.
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

// Traffic that never waits does not keep the feed open.
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
			if f.watched != want {
				t.Errorf("watched %d times, want %d", f.watched, want)
			}
			for range 100 {
				time.Sleep(time.Second)
				release(t, acquire(t, two, "j"))
			}
		}
	})
}

// Four processes of a hundred waiters each, and what they ask of the store in ten
// minutes while the holder renews.
func TestWaitersOfSeveralProcessesAskTwiceAMinute(t *testing.T) {
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
			if n := b.total(); n > 31 || b.count("acquire") != n {
				t.Errorf("process %d: %d calls in ten minutes, %d of them looks", i, n, b.count("acquire"))
			}
		}
	})
}
