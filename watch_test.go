package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A feeder is a bent store with a feed that can be broken.
type feeder struct {
	*bent
	mu      sync.Mutex
	broken  error // what Watch answers
	cut     chan struct{}
	watched int
}

func newFeeder(b *bent, broken error) *feeder {
	return &feeder{bent: b, broken: broken, cut: make(chan struct{})}
}

func (f *feeder) Notify(ctx context.Context, n store.Notice) error {
	if f.isBroken() != nil {
		return f.isBroken()
	}
	return f.mem.Notify(ctx, n)
}

func (f *feeder) Watch(ctx context.Context) iter.Seq2[store.Notice, error] {
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

func (f *feeder) isBroken() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// die ends all watches and refuses new ones; nil brings the feed back.
func (f *feeder) die(err error) {
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
				f := newFeeder(bend(memstore.New()), broken)
				one, two := newClient(t, f), newClient(t, f)
				for range 5 {
					l := acquire(t, one, "k")
					wait := inBackground(t.Context(), two, "k")
					time.Sleep(5 * time.Minute)
					start := time.Now()
					release(t, l)
					r := <-wait
					if r.err != nil {
						t.Fatal(r.err)
					}
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
		f := newFeeder(bend(memstore.New()), nil)
		one, two := newClient(t, f), newClient(t, f)
		for range 20 {
			l := acquire(t, one, "k")
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(10 * time.Second)
			f.die(errNet)
			time.Sleep(7 * time.Second)
			f.die(nil)
			start := time.Now()
			release(t, l)
			r := <-wait
			if r.err != nil {
				t.Fatal(r.err)
			}
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
		f := newFeeder(bend(memstore.New()), nil)
		one, two := newClient(t, f), newClient(t, f)
		l := acquire(t, one, "k")
		wait := inBackground(t.Context(), two, "k")
		time.Sleep(10 * time.Second)
		f.bend(func(h *hooks) { // polls do not help either
			h.look = func(context.Context, []string, func() ([]store.Status, error)) ([]store.Status, error) {
				return nil, errNet
			}
		})
		f.die(errNet)
		time.Sleep(time.Second)
		release(t, l)
		time.Sleep(time.Second)
		f.die(nil)
		back := time.Now()
		if r := <-wait; r.err != nil {
			t.Error(r.err)
		}
		tookBetween(t, back, 0, 7*time.Second)
	})
}

func TestOnePollLooksAtAllKeysOfTheProcess(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
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
		b.bend(func(h *hooks) {
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
		b := bend(memstore.New())
		acquire(t, newClient(t, b.mem), "k")
		var at []time.Time
		b.bend(func(h *hooks) {
			h.look = func(_ context.Context, _ []string, do func() ([]store.Status, error)) ([]store.Status, error) {
				at = append(at, time.Now())
				return do()
			}
		})
		start := time.Now()
		_, err := newClient(t, b, mongolock.WithoutFeed()).Acquire(t.Context(), "k", mongolock.MaxWait(20*time.Second))
		mustMatch(t, err, mongolock.ErrHeld)
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
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
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
		f := newFeeder(bend(memstore.New()), nil)
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
			b := bend(memstore.New())
			b.bend(func(h *hooks) {
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
			if r.err != nil {
				t.Fatal(r.err)
			}
			tookBetween(t, start, 0, 150*time.Millisecond)
			cancel()
		})
	}
}

func TestTheNextInLineLooksForItselfWhenAHeadLeavesWithItsClaimUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		brief := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: 2 * time.Second}
		l := acquire(t, newClient(t, b.mem), "k")
		c := newClient(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		first := inBackground(ctx, c, "k")
		synctest.Wait()
		second := inBackground(t.Context(), c, "k")
		synctest.Wait()
		b.bend(func(h *hooks) {
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
		mustMatch(t, (<-first).err, context.Canceled)
		if r := <-second; r.err != nil {
			t.Error(r.err)
		}
		tookBetween(t, start, 2*time.Second, 2300*time.Millisecond)
	})
}
