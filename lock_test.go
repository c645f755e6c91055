package mongolock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

func TestDoRunsUnderTheLeaseAndReleases(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		mine := errors.New("mine")
		var inside context.Context
		err := mongolock.Do(t.Context(), c, "k", func(ctx context.Context, l *mongolock.Lease) error {
			inside = ctx
			mustBeHeld(t, b, "k")
			time.Sleep(time.Hour)
			assert.NoError(t, ctx.Err())
			assert.NoError(t, l.Err())
			return mine
		})
		assert.ErrorIs(t, err, mine)
		assert.NotErrorIs(t, err, mongolock.ErrReleased)
		assert.ErrorIs(t, inside.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(inside), mongolock.ErrReleased)
		mustBeFree(t, b, "k")
	})
}

func TestDoReleasesWhenItsFunctionPanics(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		for name, do := range map[string]func(func(context.Context, *mongolock.Lease) error){
			"Do": func(fn func(context.Context, *mongolock.Lease) error) { _ = mongolock.Do(t.Context(), c, "k", fn) },
			"TryDo": func(fn func(context.Context, *mongolock.Lease) error) {
				_, _ = mongolock.TryDo(t.Context(), c, "k", fn)
			},
		} {
			assert.PanicsWithValue(t, "ouch", func() {
				do(func(context.Context, *mongolock.Lease) error { panic("ouch") })
			}, name)
			mustBeFree(t, b, "k")
		}
	})
}

func TestDoReportsThatTheLeaseWasLostWhileItsFunctionRan(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		mine := errors.New("mine")
		err := mongolock.Do(t.Context(), c, "k", func(ctx context.Context, l *mongolock.Lease) error {
			b.On(lab.Renew, lab.Fail(errNet))
			<-ctx.Done()
			return mine
		})
		assert.ErrorIs(t, err, mine)
		assert.ErrorIs(t, err, mongolock.ErrLost)
		b.On(lab.Renew, nil)

		// The record is deleted by hand, and the function ends before a renewal notices.
		err = mongolock.Do(t.Context(), c, "k2", func(context.Context, *mongolock.Lease) error {
			b.Mem.Delete("k2")
			return nil
		})
		assert.ErrorIs(t, err, mongolock.ErrLost)
	})
}

func TestDoSucceedsThoughItsReleaseFails(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		b.On(lab.Release, lab.Fail(errNet))
		c := newClient(t, b)
		done := func(context.Context, *mongolock.Lease) error { return nil }
		assert.NoError(t, mongolock.Do(t.Context(), c, "k", done))
		b.On(lab.Release, nil)
		time.Sleep(time.Second)
		mustBeFree(t, b, "k")
		released := func(_ context.Context, l *mongolock.Lease) error { return l.Release() }
		assert.NoError(t, mongolock.Do(t.Context(), c, "k", released))
	})
}

func TestTryDoDoesNotRunItsFunctionWhileTheKeyIsHeld(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		ran, err := mongolock.TryDo(t.Context(), c, "k", func(ctx context.Context, _ *mongolock.Lease) error {
			ran, err := mongolock.TryDo(ctx, newClient(t, b), "k", func(context.Context, *mongolock.Lease) error {
				assert.Fail(t, "two functions run at once")
				return nil
			})
			assert.NoError(t, err)
			assert.False(t, ran, "the second function")
			return nil
		})
		assert.NoError(t, err)
		assert.True(t, ran, "the first function")
		assert.Error(t, mongolock.Do(t.Context(), c, "k", nil), "Do without a function")
		ran, err = mongolock.TryDo(t.Context(), c, "k", nil)
		assert.Error(t, err, "TryDo without a function")
		assert.False(t, ran)
		mustBeFree(t, b, "k")
	})
}

type ctxKey struct{}

func TestALeaseContextCarriesItsParentsValuesAndEnd(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k")
		cause := errors.New("parent's own")
		for _, parent := range []context.Context{context.Background(), t.Context()} {
			ctx := l.Context(context.WithValue(parent, ctxKey{}, 42))
			assert.Equal(t, 42, ctx.Value(ctxKey{}))
			assert.NoError(t, ctx.Err())
			assert.NoError(t, context.Cause(ctx))
		}
		parent, cancel := context.WithCancelCause(t.Context())
		child := l.Context(parent)
		cancel(cause)
		<-child.Done()
		assert.ErrorIs(t, child.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(child), cause)
		assert.NoError(t, l.Err(), "the parent's end does not end the lease")

		grandchild, cancelGrandchild := context.WithTimeout(l.Context(l.Context(context.Background())), time.Hour)
		defer cancelGrandchild()
		release(t, l)
		<-grandchild.Done()
		assert.ErrorIs(t, grandchild.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(grandchild), mongolock.ErrReleased)
		assert.Error(t, l.Context(child).Err(), "both the parent and the lease have ended")
		late := l.Context(context.WithValue(context.Background(), ctxKey{}, 1))
		<-late.Done()
		assert.ErrorIs(t, late.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(late), mongolock.ErrReleased)
		assert.Equal(t, 1, late.Value(ctxKey{}))
	})
}
