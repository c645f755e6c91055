package mongolock_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestDoWithinDoOfOneKeyFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), mongolock.WithOwner("billing-1"))
		inner := false
		err := mongolock.Do(t.Context(), c, "k", func(ctx context.Context, _ *mongolock.Lease) error {
			began := time.Now()
			ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // however it is derived
			defer cancel()
			err := mongolock.Do(ctx, c, "k", func(context.Context, *mongolock.Lease) error { inner = true; return nil })
			assert.Zero(t, time.Since(began))
			return err
		})
		var held *mongolock.HeldError
		require.ErrorAs(t, err, &held)
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.True(t, held.Here)
		require.EqualError(t, err, `mongolock: acquire "k": the caller holds it already: mongolock: "k" is held by this process, billing-1 for another 30s unless renewed`)
		assert.False(t, inner)
	})
}

func TestAKeyThatIsSharedOnceMoreIsNotWaitedFor(t *testing.T) {
	for name, how := range map[string]mongolock.AcquireOption{"as a reader": mongolock.Shared(), "with a permit": mongolock.OneOf(2)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				c, writer := newClient(t, s), newClient(t, s)
				again := func(ctx context.Context) error {
					return mongolock.Do(ctx, c, "k", func(context.Context, *mongolock.Lease) error { return nil }, how)
				}
				require.NoError(t, mongolock.Do(t.Context(), c, "k", func(ctx context.Context, _ *mongolock.Lease) error {
					require.NoError(t, again(ctx))
					waitFor(t, writer, "k")
					began := time.Now()
					require.ErrorIs(t, again(ctx), mongolock.ErrHeld, "the writer waits for us")
					assert.Zero(t, time.Since(began))
					return nil
				}, how))
			})
		})
	}
}

func TestAKeyThatIsHeldNoMoreIsNotHeldHere(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c, rival := newClient(t, s), newClient(t, b.mem, mongolock.WithOwner("rival"))
		l := acquire(t, c, "k")
		renewalsFail(b, errNet)
		b.hook(func(h *hooks) {
			h.release = func(context.Context, store.Ref, func() store.Ended) store.Ended { return store.Ended{Err: errNet} }
		})
		<-l.Done()
		acquire(t, rival, "k")
		_, err := c.TryAcquire(t.Context(), "k")
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.NotContains(t, err.Error(), "this process")
		b.hook(func(h *hooks) { *h = hooks{} })
	})
}

func TestAcquireAllOfAKeyThatTheCallerHoldsFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := newClient(t, s)
		first := acquire(t, newClient(t, s), "a") // it would be waited for first
		began := time.Now()
		err := mongolock.Do(t.Context(), c, "b", func(ctx context.Context, _ *mongolock.Lease) error {
			_, err := mongolock.AcquireAll(ctx, c, []string{"a", "b"})
			return err
		})
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.Zero(t, time.Since(began))
		release(t, first)
	})
}

func TestOnlyAWaitForItselfIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s), newClient(t, s)
		err := mongolock.Do(t.Context(), c, "k", func(ctx context.Context, l *mongolock.Lease) error {
			_, err := other.Acquire(ctx, "k", mongolock.MaxWait(time.Second)) // another client: it cannot know
			require.ErrorIs(t, err, mongolock.ErrHeld)
			_, err = c.Acquire(t.Context(), "k", mongolock.MaxWait(time.Second)) // of another caller
			require.ErrorIs(t, err, mongolock.ErrHeld)
			assert.Contains(t, err.Error(), "held by this process, ")
			_, err = other.TryAcquire(ctx, "k")
			require.ErrorIs(t, err, mongolock.ErrHeld)
			assert.NotContains(t, err.Error(), "this process")
			ran, err := mongolock.TryDo(ctx, c, "k", func(context.Context, *mongolock.Lease) error { return nil })
			require.NoError(t, err)
			assert.False(t, ran)
			require.NoError(t, mongolock.Do(ctx, c, "another", func(ctx context.Context, _ *mongolock.Lease) error {
				_, err := c.Acquire(ctx, "k")
				require.ErrorIs(t, err, mongolock.ErrHeld, "held further out")
				return nil
			}))
			require.NoError(t, l.Release())
			return mongolock.Do(context.WithoutCancel(ctx), c, "k", func(context.Context, *mongolock.Lease) error { return nil })
		})
		require.NoError(t, err, "it holds the key no more")
	})
}

func TestKeysInDifferentOrdersAreToldOnceWithBothPlaces(t *testing.T) {
	nothing := func(context.Context, *mongolock.Lease) error { return nil }
	under := func(t *testing.T, c *mongolock.Client, first, second string, how ...mongolock.AcquireOption) {
		require.NoError(t, mongolock.Do(t.Context(), c, first, func(ctx context.Context, _ *mongolock.Lease) error {
			return mongolock.Do(ctx, c, second, nothing, how...)
		}))
	}
	for name, test := range map[string]struct {
		opts []mongolock.ClientOption
		told int
	}{"by default": {told: 1}, "turned off": {opts: []mongolock.ClientOption{mongolock.WithoutOrderCheck()}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				c := newClient(t, memstore.New(), append(test.opts, mongolock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))...)
				under(t, c, "order:1", "customer:1")
				under(t, c, "order:2", "customer:9")
				assert.Empty(t, log.String(), "one order")
				under(t, c, "customer:2", "order:2")
				under(t, c, "customer:3", "order:4")
				assert.EqualValues(t, test.told, c.Stats().Disorders)
				assert.Equal(t, test.told, strings.Count(log.String(), "level=WARN"), log.String())
				assert.Equal(t, 2*test.told, strings.Count(log.String(), "nested_test.go:"), log.String())
			})
		})
	}
}

func TestAnAttemptUnderALeaseSaysNothingOfTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := newClient(t, s)
		try := func(first, second string) {
			require.NoError(t, mongolock.Do(t.Context(), c, first, func(ctx context.Context, _ *mongolock.Lease) error {
				_, err := mongolock.TryDo(ctx, c, second, func(context.Context, *mongolock.Lease) error { return nil })
				return err
			}))
		}
		try("order:1", "customer:1")
		try("customer:1", "order:1")
		rival := newClient(t, s)                                                                     // so that keys are waited for, one under the other
		for _, keys := range [][]string{{"order-items:3", "order"}, {"order:17", "order-items:3"}} { // AcquireAll has an order of its own
			held := acquire(t, rival, "order-items:3")
			time.AfterFunc(time.Second, func() { release(t, held) })
			all, err := mongolock.AcquireAll(t.Context(), c, keys)
			require.NoError(t, err)
			require.NoError(t, all.Release())
		}
		assert.Zero(t, c.Stats().Disorders, "nobody can wait for the other")
	})
}

func TestOrdersUnderOneLeaseAndOfReadersAreNoDisorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		in := func(ctx context.Context, how []mongolock.AcquireOption, keys ...string) {
			var all []*mongolock.Lease
			for _, key := range keys {
				l, err := c.Acquire(ctx, key, how...)
				require.NoError(t, err)
				ctx, all = l.Context(ctx), append(all, l)
			}
			for _, l := range all {
				release(t, l)
			}
		}
		in(t.Context(), nil, "tenant", "order:1", "customer:1")
		in(t.Context(), nil, "tenant", "customer:1", "order:1")
		in(t.Context(), []mongolock.AcquireOption{mongolock.Shared()}, "price:1", "stock:1")
		in(t.Context(), []mongolock.AcquireOption{mongolock.Shared()}, "stock:1", "price:1")
		assert.Zero(t, c.Stats().Disorders)
	})
}
