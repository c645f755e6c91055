package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
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
		require.EqualError(t, err, `mongolock: "k" is held by this process, billing-1 for another 30s unless renewed: the caller itself holds it`)
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
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c, rival := newClient(t, b), newClient(t, b.Mem, mongolock.WithOwner("rival"))
		l := acquire(t, c, "k")
		b.On(lab.Renew, lab.Fail(errNet))
		b.On(lab.Release, lab.Fail(errNet))
		<-l.Done()
		acquire(t, rival, "k")
		_, err := c.TryAcquire(t.Context(), "k")
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.NotContains(t, err.Error(), "this process")
		b.All(nil)
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
