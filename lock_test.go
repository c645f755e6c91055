package mongolock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

func TestDoRunsUnderTheLeaseAndReleases(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		mine := errors.New("mine")
		var inside context.Context
		err := mongolock.Do(t.Context(), c, "k", func(ctx context.Context, l *mongolock.Lease) error {
			inside = ctx
			mustBeHeld(t, b, "k")
			time.Sleep(time.Hour)
			if ctx.Err() != nil || l.Err() != nil {
				t.Error(ctx.Err(), l.Err())
			}
			return mine
		})
		if !errors.Is(err, mine) || errors.Is(err, mongolock.ErrReleased) {
			t.Error(err)
		}
		assert.ErrorIs(t, inside.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(inside), mongolock.ErrReleased)
		mustBeFree(t, b, "k")
	})
}

func TestDoReleasesWhenItsFunctionPanics(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		for name, do := range map[string]func(func(context.Context, *mongolock.Lease) error){
			"Do": func(fn func(context.Context, *mongolock.Lease) error) { _ = mongolock.Do(t.Context(), c, "k", fn) },
			"TryDo": func(fn func(context.Context, *mongolock.Lease) error) {
				_, _ = mongolock.TryDo(t.Context(), c, "k", fn)
			},
		} {
			func() {
				defer func() {
					if recover() != "ouch" {
						t.Errorf("%s: the panic was swallowed", name)
					}
				}()
				do(func(context.Context, *mongolock.Lease) error { panic("ouch") })
			}()
			mustBeFree(t, b, "k")
		}
	})
}

func TestDoTellsThatTheLeaseEndedUnderItsFunction(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		mine := errors.New("mine")
		err := mongolock.Do(t.Context(), c, "k", func(ctx context.Context, l *mongolock.Lease) error {
			renewalsFail(b, errNet)
			<-ctx.Done()
			return mine
		})
		assert.ErrorIs(t, err, mine)
		assert.ErrorIs(t, err, mongolock.ErrLost)
		b.hook(func(h *hooks) { h.renew = nil })

		// Taken away by hand, and the function is done before a renewal tells.
		err = mongolock.Do(t.Context(), c, "k2", func(context.Context, *mongolock.Lease) error {
			b.mem.Delete("k2")
			return nil
		})
		assert.ErrorIs(t, err, mongolock.ErrLost)
	})
}

func TestDoDoesNotFailForAReleaseThatDoes(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		b.hook(func(h *hooks) {
			h.release = func(context.Context, store.Ref, func() (bool, error)) (bool, error) { return false, errNet }
		})
		c := newClient(t, s)
		done := func(context.Context, *mongolock.Lease) error { return nil }
		assert.NoError(t, mongolock.Do(t.Context(), c, "k", done))
		b.hook(func(h *hooks) { h.release = nil })
		time.Sleep(time.Second)
		mustBeFree(t, b, "k")
		released := func(_ context.Context, l *mongolock.Lease) error { return l.Release() }
		assert.NoError(t, mongolock.Do(t.Context(), c, "k", released))
	})
}

func TestTryDoDoesNotRunWhatIsHeld(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		ran, err := mongolock.TryDo(t.Context(), c, "k", func(ctx context.Context, _ *mongolock.Lease) error {
			ran, err := mongolock.TryDo(ctx, newClient(t, s), "k", func(context.Context, *mongolock.Lease) error {
				t.Error("two inside")
				return nil
			})
			if ran || err != nil {
				t.Errorf("%v, %v", ran, err)
			}
			return nil
		})
		if !ran || err != nil {
			t.Errorf("%v, %v", ran, err)
		}
		if err := mongolock.Do(t.Context(), c, "k", nil); err == nil {
			t.Error("a nil function ran")
		}
		if ran, err := mongolock.TryDo(t.Context(), c, "k", nil); ran || err == nil {
			t.Error("a nil function ran")
		}
		mustBeFree(t, b, "k")
	})
}

type ctxKey struct{}

func TestALeaseContextCarriesItsParentsValuesAndEnd(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		l := acquire(t, newClient(t, s), "k")
		cause := errors.New("parent's own")
		for _, parent := range []context.Context{context.Background(), t.Context()} {
			ctx := l.Context(context.WithValue(parent, ctxKey{}, 42))
			if ctx.Value(ctxKey{}) != 42 || ctx.Err() != nil || context.Cause(ctx) != nil {
				t.Error(ctx.Value(ctxKey{}), ctx.Err(), context.Cause(ctx))
			}
		}
		parent, cancel := context.WithCancelCause(t.Context())
		child := l.Context(parent)
		cancel(cause)
		<-child.Done()
		assert.ErrorIs(t, child.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(child), cause)
		assert.NoError(t, l.Err(), "the parent's end was taken for the lease's")

		grandchild, cancelGrandchild := context.WithTimeout(l.Context(l.Context(context.Background())), time.Hour)
		defer cancelGrandchild()
		release(t, l)
		<-grandchild.Done()
		assert.ErrorIs(t, grandchild.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(grandchild), mongolock.ErrReleased)
		if again := l.Context(child); again.Err() == nil { // of one that is over
			t.Error("alive after both of its ends")
		}
		late := l.Context(context.WithValue(context.Background(), ctxKey{}, 1))
		<-late.Done()
		assert.ErrorIs(t, late.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(late), mongolock.ErrReleased)
		if late.Value(ctxKey{}) != 1 {
			t.Error("no values")
		}
	})
}
