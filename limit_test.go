package mongolock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
	"github.com/mongolock/mongolock/store/storetest"
)

// TestARaisedLimitWakesThoseWhoWaitAtOnce: in other processes as in this one, as many as there are
// permits now, and also one that wants more than there were.
func TestARaisedLimitWakesThoseWhoWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		operator, ctx := newLimitClient(t, s), t.Context()
		require.NoError(t, operator.SetLimit(ctx, "smtp", 1))
		holder, err := operator.TryAcquire(ctx, "smtp", mongolock.OneOf(3))
		require.NoError(t, err)
		granted := make(chan time.Duration, 4)
		begun := time.Now()
		for i := range 4 {
			c := operator
			if i > 0 {
				c = newLimitClient(t, s)
			}
			weight := 1 + i%2
			go func() {
				l, err := c.Acquire(context.WithoutCancel(ctx), "smtp", mongolock.OneOf(3), mongolock.Weight(weight), mongolock.MaxWait(time.Minute))
				if assert.NoError(t, err) {
					granted <- time.Since(begun)
					time.Sleep(time.Minute)
					assert.NoError(t, l.Release())
				}
			}()
		}
		time.Sleep(5 * time.Second)
		assert.Empty(t, granted, "above the number that was set")
		status, err := operator.Inspect(ctx, "smtp")
		require.NoError(t, err)
		assert.Equal(t, []int{1, 3, 1}, []int{status.Set, status.Limit, status.Taken()})
		require.NoError(t, operator.SetLimit(ctx, "smtp", 7))
		for range 4 {
			assert.Less(t, <-granted, 5*time.Second+10*time.Millisecond)
		}
		require.NoError(t, holder.Release())
		time.Sleep(2 * time.Minute)
	})
}

// TestAClaimOfMoreThanIsSetIsPassedInItsProcessToo: by permits and by whoever wants the key alone,
// that wait already or come later, and is granted the key once the number is raised.
func TestAClaimOfMoreThanIsSetIsPassedInItsProcessToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		operator, c, ctx := newLimitClient(t, s), newLimitClient(t, s), t.Context()
		holder, err := operator.TryAcquire(ctx, "smtp", mongolock.OneOf(5), mongolock.Weight(2))
		require.NoError(t, err)
		granted := make(chan string, 4)
		wait := func(what string, opts ...mongolock.AcquireOption) {
			go func() {
				l, err := c.Acquire(ctx, "smtp", opts...)
				if assert.NoError(t, err, what) {
					granted <- what
					time.Sleep(time.Millisecond)
					assert.NoError(t, l.Release())
				}
			}()
			time.Sleep(time.Second)
		}
		within := func(want string) {
			t.Helper()
			begun := time.Now()
			select {
			case got := <-granted:
				assert.Equal(t, want, got)
				assert.Less(t, time.Since(begun), 100*time.Millisecond)
			case <-time.After(time.Hour):
				t.Errorf("an hour later %s still waits", want)
			}
		}
		wait("heavy", mongolock.OneOf(5), mongolock.Weight(4))
		wait("behind", mongolock.OneOf(5))
		assert.Empty(t, granted, "a heavy claim holds up the line while enough permits are set")
		require.NoError(t, operator.SetLimit(ctx, "smtp", 3))
		within("behind")
		wait("later", mongolock.OneOf(5))
		within("later")
		wait("alone")
		require.NoError(t, holder.Release())
		within("alone")
		wait("free", mongolock.OneOf(5))
		within("free")
		require.NoError(t, operator.SetLimit(ctx, "smtp", 4))
		within("heavy")
	})
}

// TestAReleaseOffersAsManyPermitsAsWereSet: those who wait hear of each.
func TestAReleaseOffersAsManyPermitsAsWereSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, ctx := newLimitClient(t, s), t.Context()
		require.NoError(t, c.SetLimit(ctx, "smtp", 5))
		var all []*mongolock.Lease
		for range 5 {
			l, err := c.TryAcquire(ctx, "smtp", mongolock.OneOf(2))
			require.NoError(t, err)
			all = append(all, l)
		}
		other := newLimitClient(t, s)
		for _, l := range all {
			time.AfterFunc(time.Second, func() { assert.NoError(t, l.Release()) })
			begun := time.Now()
			next, err := other.Acquire(ctx, "smtp", mongolock.OneOf(2))
			require.NoError(t, err)
			assert.Less(t, time.Since(begun), time.Second+10*time.Millisecond)
			defer func() { assert.NoError(t, next.Release()) }()
		}
	})
}

func TestALimitThatCannotBeSetSaysWhy(t *testing.T) {
	c, err := mongolock.NewWithStore(struct{ store.Store }{memstore.New()})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	assert.EqualError(t, c.SetLimit(t.Context(), "k", 1), `mongolock: set limit "k": unsupported operation`)
	assert.EqualError(t, c.SetLimit(t.Context(), "k", -1), "mongolock: SetLimit(-1): must be between 0 and 10000")
	assert.EqualError(t, c.SetLimit(t.Context(), "k", 10_001), "mongolock: SetLimit(10001): must be between 0 and 10000")
	assert.EqualError(t, c.SetLimit(t.Context(), "", 1), "mongolock: key is empty")

	s := memstore.New()
	s.Put("k", "a stranger's")
	c = newLimitClient(t, s)
	require.ErrorIs(t, c.SetLimit(t.Context(), "k", 1), mongolock.ErrForeign)
	require.NoError(t, c.Close())
	assert.ErrorIs(t, c.SetLimit(t.Context(), "k", 1), mongolock.ErrClosed)
}

// TestALimitOfUnknownOutcomeMayBeSet: only an error that matches ErrNotApplied says that it is not.
func TestALimitOfUnknownOutcomeMayBeSet(t *testing.T) {
	f := storetest.NewFaulty(memstore.New())
	c := newLimitClient(t, f)
	for _, fault := range []storetest.Fault{storetest.ReplyLost, storetest.Refused} {
		require.NoError(t, c.SetLimit(t.Context(), "k", 1))
		f.Next(1, fault, storetest.OpSetLimit)
		err := c.SetLimit(t.Context(), "k", 2)
		require.ErrorIs(t, err, storetest.ErrFault)
		status, inspected := c.Inspect(t.Context(), "k")
		require.NoError(t, inspected)
		assert.Equal(t, status.Set == 1, errors.Is(err, mongolock.ErrNotApplied))
	}
}

func newLimitClient(t *testing.T, s store.Store) *mongolock.Client {
	c, err := mongolock.NewWithStore(s)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}
