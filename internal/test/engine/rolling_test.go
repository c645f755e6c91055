package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
	"github.com/mongolock/mongolock/store/memstore"
)

// inMemoryAndInFiles runs a test on either store, in virtual time.
func inMemoryAndInFiles(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, memstore.New()) })
	})
	t.Run("files", func(t *testing.T) {
		dir := disktest.InMemory(t)
		synctest.Test(t, func(t *testing.T) {
			s, err := filestore.Open(dir)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, s.Close()) })
			test(t, s)
		})
	})
}

func versionOf(t *testing.T, s store.Store) *mongolock.Client {
	t.Helper()
	c, err := mongolock.NewWithStore(s)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func TestADeployRollsFromFivePermitsToSixAndBackByTry(t *testing.T) {
	inMemoryAndInFiles(t, func(t *testing.T, s store.Store) {
		old, young, ctx := versionOf(t, s), versionOf(t, s), t.Context()
		permit := func(c *mongolock.Client, n int) *mongolock.Lease {
			t.Helper()
			l, err := c.TryAcquire(ctx, "smtp", mongolock.OneOf(n))
			require.NoError(t, err)
			return l
		}
		full := func(c *mongolock.Client, n int) {
			t.Helper()
			_, err := c.TryAcquire(ctx, "smtp", mongolock.OneOf(n))
			require.ErrorIs(t, err, mongolock.ErrHeld)
		}
		var all []*mongolock.Lease
		for range 5 {
			all = append(all, permit(old, 5))
		}
		full(old, 5)
		all = append(all, permit(young, 6))
		full(young, 6)
		for range 5 { // the old ones go, and new ones come in their place
			require.NoError(t, all[0].Release())
			all = append(all[1:], permit(young, 6))
			full(old, 5)
		}
		require.NoError(t, all[0].Release()) // and back: five are taken
		full(old, 5)
		require.NoError(t, all[1].Release())
		all = append(all[2:], permit(old, 5))
		full(old, 5)
		for _, l := range all {
			assert.NoError(t, l.Release())
		}
	})
}

func TestADeployRollsFromFivePermitsToSixAndBackInLine(t *testing.T) {
	inMemoryAndInFiles(t, func(t *testing.T, s store.Store) {
		ctx := context.WithoutCancel(t.Context())
		var working, most atomic.Int64
		done := make(chan struct{})
		work := func(n int) {
			defer func() { done <- struct{}{} }()
			c := versionOf(t, s)
			for range 3 {
				l, err := c.Acquire(ctx, "smtp", mongolock.OneOf(n), mongolock.MaxWait(10*time.Minute))
				if !assert.NoError(t, err) {
					return
				}
				n := working.Add(1)
				assert.LessOrEqual(t, n, int64(6))
				if n == 6 {
					most.Store(n)
				}
				time.Sleep(time.Second)
				working.Add(-1)
				assert.NoError(t, l.Release())
			}
		}
		versions := []int{5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5, 5}
		for _, n := range versions {
			go work(n)
			time.Sleep(300 * time.Millisecond)
		}
		for range versions {
			<-done
		}
		assert.Equal(t, int64(6), most.Load(), "all permits of the larger number are used")
	})
}

// TestASmallerNumberInFrontKeepsItsTurn: a claim that would fit waits behind it, and is granted its
// permit once the one before it has its own.
func TestASmallerNumberInFrontKeepsItsTurn(t *testing.T) {
	inMemoryAndInFiles(t, func(t *testing.T, s store.Store) {
		holder, ctx := versionOf(t, s), t.Context()
		one, err := holder.TryAcquire(ctx, "smtp", mongolock.OneOf(2))
		require.NoError(t, err)
		two, err := holder.TryAcquire(ctx, "smtp", mongolock.OneOf(2))
		require.NoError(t, err)
		granted := make(chan string, 2)
		wait := func(name string, n int) {
			c := versionOf(t, s)
			go func() {
				l, err := c.Acquire(ctx, "smtp", mongolock.OneOf(n))
				if assert.NoError(t, err) {
					granted <- name
					<-ctx.Done()
					assert.NoError(t, l.Release())
				}
			}()
			time.Sleep(time.Second)
		}
		wait("two", 2)
		wait("three", 3)
		_, err = holder.TryAcquire(ctx, "smtp", mongolock.OneOf(3))
		require.ErrorIs(t, err, mongolock.ErrHeld, "it would fit, and comes after those in line")
		time.Sleep(5 * time.Second)
		assert.Empty(t, granted)

		require.NoError(t, one.Release())
		begun := time.Now()
		assert.ElementsMatch(t, []string{"two", "three"}, []string{<-granted, <-granted}, "with the permit of the one before it, three are taken")
		assert.Less(t, time.Since(begun), 2*time.Second)
		require.NoError(t, two.Release())
	})
}

// TestOneBehindASmallerNumberIsToldOnceItFits: it neither polls nor waits for the next look.
func TestOneBehindASmallerNumberIsToldOnceItFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		holder, ctx := versionOf(t, s), t.Context()
		var all []*mongolock.Lease
		for range 5 {
			l, err := holder.TryAcquire(ctx, "smtp", mongolock.OneOf(5))
			require.NoError(t, err)
			all = append(all, l)
		}
		granted := make(chan time.Time, 2)
		for _, n := range []int{5, 6} {
			c := versionOf(t, s)
			go func() {
				l, err := c.Acquire(ctx, "smtp", mongolock.OneOf(n))
				if assert.NoError(t, err) {
					granted <- time.Now()
					<-ctx.Done()
					assert.NoError(t, l.Release())
				}
			}()
			time.Sleep(time.Second)
		}
		begun := time.Now()
		require.NoError(t, all[0].Release())
		<-granted
		assert.Less(t, (<-granted).Sub(begun), 10*time.Millisecond)
		for _, l := range all[1:] {
			assert.NoError(t, l.Release())
		}
	})
}

func TestAWeightThatCanNeverFitIsAnErrorWithoutACommand(t *testing.T) {
	f := lab.New(memstore.New())
	c := versionOf(t, f)
	for _, acquire := range []func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error){c.Acquire, c.TryAcquire} {
		_, err := acquire(t.Context(), "smtp", mongolock.OneOf(5), mongolock.Weight(6))
		require.EqualError(t, err, "mongolock: Weight(6): there are 5 permits")
		assert.False(t, errors.Is(err, mongolock.ErrHeld) || errors.Is(err, mongolock.ErrModeMismatch))
	}
	assert.Zero(t, f.Count(lab.Acquire))
}
