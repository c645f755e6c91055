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
	"github.com/mongolock/mongolock/store/memstore"
)

func TestDoWithinDoOfOneKeyFailsAtOnce(t *testing.T) {
	for name, opts := range map[string][]mongolock.AcquireOption{
		"alone": nil, "as readers": {mongolock.Shared()}, "with a permit each": {mongolock.OneOf(2)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, memstore.New(), mongolock.WithOwner("billing-1"))
				inner := false
				err := mongolock.Do(t.Context(), c, "k", func(ctx context.Context, _ *mongolock.Lease) error {
					began := time.Now()
					ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // however it is derived
					defer cancel()
					err := mongolock.Do(ctx, c, "k", func(context.Context, *mongolock.Lease) error { inner = true; return nil }, opts...)
					assert.Zero(t, time.Since(began))
					return err
				}, opts...)
				var held *mongolock.HeldError
				require.ErrorAs(t, err, &held)
				require.ErrorIs(t, err, mongolock.ErrHeld)
				assert.True(t, held.Here)
				assert.EqualError(t, err, `mongolock: acquire "k": the caller holds it already: mongolock: "k" is held by this process, billing-1 for another 30s unless renewed`)
				assert.False(t, inner)
			})
		})
	}
}

func TestAcquireAllOfAKeyThatTheCallerHoldsFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		err := mongolock.Do(t.Context(), c, "b", func(ctx context.Context, _ *mongolock.Lease) error {
			_, err := mongolock.AcquireAll(ctx, c, []string{"a", "b"})
			return err
		})
		require.ErrorIs(t, err, mongolock.ErrHeld)
		_, err = c.TryAcquire(t.Context(), "a")
		assert.NoError(t, err, "it was given back")
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
		c := newClient(t, memstore.New())
		try := func(first, second string) {
			require.NoError(t, mongolock.Do(t.Context(), c, first, func(ctx context.Context, _ *mongolock.Lease) error {
				_, err := mongolock.TryDo(ctx, c, second, func(context.Context, *mongolock.Lease) error { return nil })
				return err
			}))
		}
		try("order:1", "customer:1")
		try("customer:1", "order:1")
		for range 3 { // AcquireAll has an order of its own
			all, err := mongolock.AcquireAll(t.Context(), c, []string{"b:2", "a:1", "b:1"})
			require.NoError(t, err)
			require.NoError(t, all.Release())
		}
		assert.Zero(t, c.Stats().Disorders, "it waits for nobody")
	})
}
