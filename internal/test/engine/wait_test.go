package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestAWaiterGetsTheKeySoonAfterADeadHolderExpires(t *testing.T) {
	for _, feed := range []bool{true, false} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			var opts []mongolock.ClientOption
			if !feed {
				opts = append(opts, mongolock.WithoutFeed())
			}
			dead := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: 20 * time.Second}
			_, err := b.Mem.Acquire(t.Context(), dead)
			require.NoError(t, err)
			start := time.Now()
			acquire(t, newClient(t, b, opts...), "k")
			tookBetween(t, start, 20*time.Second, 20*time.Second+50*time.Millisecond)
		})
	}
}

func TestACancelledAcquireHasNoUnknownOutcome(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		b.On(lab.Acquire, lab.Slow(time.Second, time.Second))
		c := newClient(t, b)
		for name, ask := range map[string]func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error){
			"try": c.TryAcquire, "wait": c.Acquire,
		} {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			l, err := ask(ctx, "k")
			cancel()
			tookBetween(t, start, 1500*time.Millisecond, 1500*time.Millisecond)
			assert.Nil(t, l, name)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, name)
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
			mustBeHeld(t, b, "k")
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			mustBeFree(t, b, "k") // given back at the moment when the grant came
			assert.Zero(t, b.Count(lab.Undo), "clean-ups of %s", name)
		}
	})
}

func TestMaxWaitIsKeptWhenTheStoreHangs(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		acquire(t, newClient(t, b.Mem), "k")
		c := newClient(t, b, mongolock.WithoutFeed())
		wait := make(chan result, 1)
		start := time.Now()
		go func() {
			l, err := c.Acquire(context.WithoutCancel(t.Context()), "k", mongolock.MaxWait(35*time.Second))
			wait <- result{l, err, time.Now()}
		}()
		synctest.Wait()
		// the waiter asks again when the holder should have expired, and the call hangs
		b.On(lab.Acquire, lab.Hang)
		b.On(lab.Look, lab.Hang)
		r := <-wait
		assert.ErrorIs(t, r.err, mongolock.ErrHeld)
		tookBetween(t, start, 35*time.Second, 35*time.Second)
	})
}

// The claim that the waiter sends when the holder has run out is over after ten seconds.
func TestTheErrorOfMaxWaitMatchesNoContextsError(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		acquire(t, newClient(t, b.Mem), "k", mongolock.NoRenewal())
		wait := inBackground(t.Context(), newClient(t, b), "k", mongolock.MaxWait(time.Minute))
		time.Sleep(time.Second)
		b.All(lab.Hang)
		err := (<-wait).err
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.ErrorContains(t, err, "last fault: context deadline exceeded")
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
		b.All(nil)
	})
}

func TestOneOfManyConcurrentTriesGetsANewKey(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		exactlyOneIsGranted(t, b)
	})
}

func TestOneOfManyConcurrentTriesGetsAnExpiredKey(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		dead := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: time.Second}
		_, err := b.Mem.Acquire(t.Context(), dead)
		require.NoError(t, err)
		time.Sleep(time.Second)
		exactlyOneIsGranted(t, b)
	})
}

func exactlyOneIsGranted(t *testing.T, s store.Store) {
	t.Helper()
	var mu sync.Mutex
	granted := 0
	var wg sync.WaitGroup
	for range 20 {
		c := newClient(t, s)
		wg.Go(func() {
			l, err := c.TryAcquire(t.Context(), "k")
			if l != nil && assert.NoError(t, err) {
				mu.Lock()
				granted++
				mu.Unlock()
				return
			}
			assert.ErrorIs(t, err, mongolock.ErrHeld)
		})
	}
	wg.Wait()
	assert.Equal(t, 1, granted, "leases granted")
}

// A hungStore answers and applies no call while it hangs, and its feed is silent.
type hungStore struct {
	*lab.Store
	hung atomic.Bool
}

func newHungStore() *hungStore {
	s := &hungStore{Store: lab.New(memstore.New())}
	hangs := func(ctx context.Context, call *lab.Call) error {
		if s.hung.Load() {
			return lab.Hang(ctx, call)
		}
		return call.Do()
	}
	s.All(hangs)
	s.On(lab.Watch, hangs)
	s.Heard = func(store.Notice) bool { return !s.hung.Load() }
	return s
}

// The cases are what the client has to do with the keys "a" and "b" when the store begins to hang.
func TestACallIsOverSoonAfterItsLimitWhateverHangs(t *testing.T) {
	hang := func(s *hungStore) { s.hung.Store(true) }
	leaves := func(t *testing.T, c *mongolock.Client, keys ...string) {
		for _, key := range keys {
			l := acquire(t, c, key)
			time.AfterFunc(time.Second/2, func() { _ = l.Release() })
		}
	}
	cases := map[string]func(t *testing.T, s *hungStore, c *mongolock.Client){
		"nothing":      func(_ *testing.T, s *hungStore, _ *mongolock.Client) { hang(s) },
		"a claim of a": func(t *testing.T, s *hungStore, c *mongolock.Client) { hang(s); _, _ = c.TryAcquire(t.Context(), "a") },
		"a claim of b": func(t *testing.T, s *hungStore, c *mongolock.Client) { hang(s); _, _ = c.TryAcquire(t.Context(), "b") },
		"a lease of a": func(t *testing.T, s *hungStore, c *mongolock.Client) { leaves(t, c, "a"); hang(s) },
		"releases of both": func(t *testing.T, s *hungStore, c *mongolock.Client) {
			leaves(t, c, "a", "b")
			hang(s)
			time.Sleep(time.Second)
		},
		"the line of b": func(t *testing.T, s *hungStore, _ *mongolock.Client) {
			acquire(t, newClient(t, s), "b")
			time.AfterFunc(time.Second/4, func() { hang(s) })
		},
		"both lines": func(t *testing.T, s *hungStore, _ *mongolock.Client) {
			leaves(t, newClient(t, s), "a", "b")
			time.AfterFunc(time.Second/4, func() { hang(s) })
		},
	}
	calls := map[string]func(ctx context.Context, c *mongolock.Client, opts ...mongolock.AcquireOption) error{
		"Acquire": func(ctx context.Context, c *mongolock.Client, opts ...mongolock.AcquireOption) error {
			_, err := c.Acquire(ctx, "a", opts...)
			return err
		},
		"AcquireAll": func(ctx context.Context, c *mongolock.Client, opts ...mongolock.AcquireOption) error {
			_, err := mongolock.AcquireAll(ctx, c, []string{"a", "b"}, opts...)
			return err
		},
		"AcquireAll, For": func(ctx context.Context, c *mongolock.Client, opts ...mongolock.AcquireOption) error {
			_, err := mongolock.AcquireAll(ctx, c, []string{"a", "b"}, append(opts, mongolock.For("b"))...)
			return err
		},
		"Do": func(ctx context.Context, c *mongolock.Client, opts ...mongolock.AcquireOption) error {
			return mongolock.Do(ctx, c, "b", func(context.Context, *mongolock.Lease) error { return nil }, opts...)
		},
	}
	for name, prepare := range cases {
		for call, do := range calls {
			for _, limit := range []time.Duration{100 * time.Millisecond, 7 * time.Second, 40 * time.Second} {
				for _, maxWait := range []bool{true, false} {
					what := fmt.Sprintf("%s, %s, %v, MaxWait %v", name, call, limit, maxWait)
					synctest.Test(t, func(t *testing.T) {
						s := newHungStore()
						defer s.hung.Store(false)
						c := newClient(t, s)
						prepare(t, s, c)
						ctx, opts := t.Context(), []mongolock.AcquireOption(nil)
						if maxWait {
							opts = append(opts, mongolock.MaxWait(limit))
						} else {
							bounded, cancel := context.WithTimeout(ctx, limit)
							defer cancel()
							ctx = bounded
						}
						start := time.Now()
						err := do(ctx, c, opts...)
						took := time.Since(start)
						require.NotErrorIs(t, err, mongolock.ErrClosed, what)
						assert.LessOrEqual(t, took, limit+time.Second, what)
					})
				}
			}
		}
	}
}
