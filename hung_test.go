package mongolock_test

import (
	"context"
	"fmt"
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
