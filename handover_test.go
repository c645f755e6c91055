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

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestHandOverIsOneCommand(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		l := acquire(t, c, "k")
		wait := inBackground(t.Context(), c, "k")
		synctest.Wait()
		b.reset()
		release(t, l)
		r := <-wait
		if r.err != nil || r.lease.Token() <= l.Token() {
			t.Fatalf("%v, token after %d", r.err, l.Token())
		}
		if b.count("transfer") != 1 || b.total() != 1 {
			t.Errorf("%d transfers of %d commands", b.count("transfer"), b.total())
		}
		time.Sleep(time.Hour)
		if r.lease.Err() != nil {
			t.Error("not renewed:", r.lease.Err())
		}
	})
}

// loop lets n goroutines of a client take the key again and again, and counts the
// grants, until stop is called.
func loop(t *testing.T, c *mongolock.Client, n int, section time.Duration) (grants *atomic.Int64, stop func()) {
	var over atomic.Bool
	var wg sync.WaitGroup
	grants = new(atomic.Int64)
	for range n {
		wg.Go(func() {
			for !over.Load() {
				l, err := c.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
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
					onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
						if violation := notStarved(t, s, workers, section, feed); violation != "" {
							t.Error(violation)
						}
					})
				})
			}
		}
	}
}

// Eight processes on a store whose calls take a while, not the same for all.
func TestEightClientsThatLoopShareTheKey(t *testing.T) {
	for _, section := range []time.Duration{0, 3 * time.Millisecond, 40 * time.Millisecond} {
		t.Run(section.String(), func(t *testing.T) {
			if violation := inBubble(t, func(t *testing.T) string { return eightThatLoop(t, section, 0) }); violation != "" {
				t.Error(violation)
			}
		})
	}
}

// eightThatLoop counts their grants; the first of them are ten times as near to the
// store as the others.
func eightThatLoop(t *testing.T, section time.Duration, near int) (violation string) {
	mem := memstore.New()
	var grants []*atomic.Int64
	var stops []func()
	for i := range 8 {
		trip := time.Millisecond
		if i < near {
			trip /= 10
		}
		n, stop := loop(t, newClient(t, slowly(mem, trip)), 1, section)
		grants, stops = append(grants, n), append(stops, stop)
	}
	time.Sleep(10 * time.Second)
	var each []int64
	for _, n := range grants {
		each = append(each, n.Load())
	}
	var all sync.WaitGroup // each waits for its own, who may wait for another's
	for _, stop := range stops {
		all.Go(stop)
	}
	all.Wait()
	slices.Sort(each)
	t.Logf("grants %v", each)
	if each[0]*3 < each[7] || each[0] < 10 {
		return fmt.Sprintf("the least served got %d, the most served %d", each[0], each[7])
	}
	return ""
}

// slowly is a store whose calls take a trip there and a trip back, each at most three
// times as long as the least.
func slowly(mem *memstore.Store, least time.Duration) *bent {
	b := bend(mem)
	trip := func() { time.Sleep(least + rand.N(2*least)) }
	b.bend(func(h *hooks) {
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

// notStarved lets one wait for a key that the workers of another process take again
// and again.
func notStarved(t *testing.T, s store.Store, workers int, section time.Duration, feed bool) (violation string) {
	var opts []mongolock.ClientOption
	bound := 100*time.Millisecond + 3*section + 100*time.Millisecond
	if !feed {
		opts = append(opts, mongolock.WithoutFeed())
		bound = 5 * time.Second // a look has to fall into the 50 ms that the others leave it alone
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
			return fmt.Sprintf("starved, while the others had it %d times: %v", grants.Load()-before, err)
		}
		if waited := time.Since(start); waited > bound {
			return fmt.Sprintf("waited %v, while the others had it %d times; want at most %v", waited, grants.Load()-before, bound)
		}
		release(t, l)
		time.Sleep(time.Second)
	}
	return ""
}

func TestAtMostSixteenHandOversInARowWhileOthersWait(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		greedy, other := newClient(t, s), newClient(t, s)
		grants, stop := loop(t, greedy, 4, time.Millisecond)
		defer stop()
		time.Sleep(100 * time.Millisecond)
		before := grants.Load()
		wait := inBackground(t.Context(), other, "k")
		r := <-wait
		if r.err != nil {
			t.Fatal(r.err)
		}
		// The one that held it, the one that first saw the word, and sixteen more.
		if n := grants.Load() - before; n < 10 || n > 18 {
			t.Errorf("the others had it %d times meanwhile", n)
		}
		time.Sleep(60 * time.Millisecond) // they leave it alone for 50 ms
		before = grants.Load()
		release(t, r.lease)
		time.Sleep(time.Millisecond)
		if grants.Load() == before {
			t.Error("nobody of the others had it after that")
		}
	})
}

func TestWithoutWordOfOthersHandOversGoOnForEver(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		_, stop := loop(t, c, 2, time.Millisecond)
		time.Sleep(time.Second)
		stop()
		if b.count("transfer") < 990 || b.count("acquire") > 2 {
			t.Errorf("%d transfers, %d acquires", b.count("transfer"), b.count("acquire"))
		}
	})
}

func TestAWaiterCancelledAsItIsHandedTheKeyLosesNothing(t *testing.T) {
	const took = 10 * time.Millisecond
	for _, sameHead := range []bool{true, false} {
		for offset := -took; offset <= 2*took; offset += took / 4 {
			onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
				b.bend(func(h *hooks) {
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
				if sameHead {
					second = inBackground(t.Context(), c, "k")
				}
				time.Sleep(50 * time.Millisecond)
				time.AfterFunc(took+offset, cancel)
				time.Sleep(took)
				release(t, l)
				r := <-first
				switch {
				case r.err == nil:
					release(t, r.lease)
				case r.lease != nil:
					t.Errorf("offset %v: a lease and %v", offset, r.err)
				default:
					mustMatch(t, r.err, context.Canceled)
				}
				cancel()
				if second != nil {
					r := <-second
					if r.err != nil {
						t.Fatalf("offset %v: %v", offset, r.err)
					}
					release(t, r.lease)
				}
				time.Sleep(100 * time.Millisecond)
				mustBeFree(t, b, "k")
			})
		}
	}
}

func TestAHandOverOfUnknownOutcomeServesTheWaiterAllTheSame(t *testing.T) {
	for _, applied := range []bool{false, true} {
		onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
			c := newClient(t, s)
			l := acquire(t, c, "k")
			wait := inBackground(t.Context(), c, "k")
			synctest.Wait()
			b.bend(func(h *hooks) {
				h.transfer = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
					if applied {
						_, _ = do()
					}
					return store.Grant{}, errNet
				}
			})
			mustMatch(t, l.Release(), errNet, mongolock.ErrOutcomeUnknown)
			start := time.Now()
			r := <-wait
			if r.err != nil || r.lease.Token() <= l.Token() {
				t.Fatal(r.err)
			}
			tookBetween(t, start, 0, time.Second)
			time.Sleep(time.Hour)
			release(t, l)
			if r.lease.Err() != nil {
				t.Error(r.lease.Err())
			}
		})
	}
}

func TestALateHandOverIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		c := newClient(t, b)
		l := acquire(t, c, "k")
		wait := inBackground(t.Context(), c, "k", mongolock.TTL(time.Second))
		synctest.Wait()
		b.bend(func(h *hooks) {
			h.transfer = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				defer time.Sleep(2 * time.Second) // longer than what it grants
				return do()
			}
		})
		release(t, l)
		r := <-wait
		if r.err != nil {
			t.Fatal(r.err)
		}
		tookBetween(t, r.when, 0, 0)
		release(t, r.lease)
		time.Sleep(time.Second)
		mustBeFree(t, b, "k")
	})
}
