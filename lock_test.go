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

// The helpers of the tests of this folder. Those of internal/test/engine have more of them.

// errNet is a fault that leaves the outcome of a call unknown.
var errNet = errors.New("connection reset")

var newClient = lab.Client

func acquire(t *testing.T, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	t.Helper()
	lease, err := c.Acquire(t.Context(), key, opts...)
	require.NoError(t, err, "Acquire(%q)", key)
	return lease
}

func release(t *testing.T, l *mongolock.Lease) {
	t.Helper()
	assert.NoError(t, l.Release(), "Release of %q", l.Key())
}

// mustBeHeld fails unless other clients see the key as held at this moment.
func mustBeHeld(t *testing.T, s *lab.Store, key string) {
	t.Helper()
	assert.False(t, isFree(t, s, key), "%q is free", key)
}

func mustBeFree(t *testing.T, s *lab.Store, key string) {
	t.Helper()
	assert.True(t, isFree(t, s, key), "%q is held", key)
}

func isFree(t *testing.T, s *lab.Store, key string) bool {
	t.Helper()
	all, err := s.Store.Look(context.WithoutCancel(t.Context()), []string{key})
	require.NoError(t, err)
	return all[0].Free()
}

// isOver reports whether a Done channel is closed once every goroutine of the bubble
// waits.
func isOver(done <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// tookBetween fails unless the time since start lies within the bounds.
func tookBetween(t *testing.T, start time.Time, least, most time.Duration) {
	t.Helper()
	if took := time.Since(start); took < least || took > most {
		t.Errorf("took %v, want %v to %v", took, least, most)
	}
}

// A result is what an Acquire in the background returned, and when.
type result struct {
	lease *mongolock.Lease
	err   error
	when  time.Time
}

// inBackground calls Acquire in a goroutine of its own.
func inBackground(ctx context.Context, c *mongolock.Client, key string) <-chan result {
	ch := make(chan result, 1)
	go func() {
		l, err := c.Acquire(ctx, key)
		ch <- result{l, err, time.Now()}
	}()
	return ch
}
