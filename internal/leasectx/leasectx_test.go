package leasectx

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errOver = errors.New("over")

// A lease ends at a time, which its Err reads, or by end.
type lease struct {
	*Tether
	mu   sync.Mutex
	over time.Time
	err  error
}

func newLease(lasts time.Duration) *lease {
	l := &lease{over: time.Now().Add(lasts)}
	l.Tether = New(l)
	return l
}

func (l *lease) Err() error {
	l.mu.Lock()
	if l.err == nil && !time.Now().Before(l.over) {
		l.err = errOver
	}
	err := l.err
	l.mu.Unlock()
	if err != nil {
		l.End(err)
	}
	return err
}

func (l *lease) end(cause error) {
	l.mu.Lock()
	l.err = cause
	l.mu.Unlock()
	l.End(cause)
}

func (l *lease) kept() int {
	l.Tether.mu.Lock()
	defer l.Tether.mu.Unlock()
	return len(l.open)
}

type mark struct{}

func TestAContextHasItsParentsValuesAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Hour)
		cause := errors.New("the parent's own")
		parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), mark{}, 1))
		ctx := l.Context(context.WithValue(parent, mark{}, 2))
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		assert.Equal(t, 2, child.Value(mark{}))
		assert.NoError(t, context.Cause(ctx))
		cancel(cause)
		for _, c := range []context.Context{ctx, child} {
			<-c.Done()
			assert.Equal(t, context.Canceled, c.Err())
			assert.Equal(t, cause, context.Cause(c))
		}
		assert.NoError(t, l.Err(), "the parent's end does not end the lease")
	})
}

func TestADeadlineOfTheParentIsOneOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Hour)
		parent, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctx := l.Context(parent)
		want, _ := parent.Deadline()
		deadline, ok := ctx.Deadline()
		assert.True(t, ok)
		assert.Equal(t, want, deadline)
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		<-child.Done()
		assert.Equal(t, context.DeadlineExceeded, child.Err())
	})
}

func TestEndCancelsAllContextsBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Hour)
		cause := errors.New("released")
		never := l.Context(context.WithValue(context.Background(), mark{}, 1))
		some := []context.Context{never, l.Context(t.Context()), l.Context(l.Context(t.Context())), l.Context(never)}
		for _, ctx := range some {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			some = append(some, child)
		}
		l.end(cause)
		late := l.Context(context.WithValue(t.Context(), mark{}, 2))
		assert.Equal(t, 2, late.Value(mark{}))
		for _, ctx := range append(some, late) {
			select {
			case <-ctx.Done():
			default:
				t.Fatal("not cancelled")
			}
			assert.Equal(t, context.Canceled, ctx.Err())
			assert.Equal(t, cause, context.Cause(ctx))
		}
		l.End(errOver)
		assert.Equal(t, cause, context.Cause(l.Context(t.Context())), "the first cause stays")
	})
}

func TestErrReadsTheOwnersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Minute)
		ctx := l.Context(t.Context())
		inner := l.Context(ctx)
		time.Sleep(time.Minute) // no timer ends the lease
		assert.Equal(t, context.Canceled, inner.Err())
		assert.Equal(t, errOver, context.Cause(inner))
		assert.Equal(t, context.Canceled, ctx.Err())
	})
}

func TestContextsOfOneParentShareTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Hour)
		cause := errors.New("the application stops")
		app, cancel := context.WithCancelCause(t.Context())
		all := make([]context.Context, 1000)
		for i := range all {
			all[i] = l.Context(context.WithValue(app, mark{}, i))
		}
		assert.Equal(t, 1, l.kept())
		for i, ctx := range all {
			require.Equal(t, i, ctx.Value(mark{}))
		}
		cancel(cause)
		for _, ctx := range all {
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.Equal(t, cause, context.Cause(ctx))
		}
	})
}

func TestContextsOfFinishedJobsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Hour)
		for range 1000 {
			job, cancel := context.WithCancel(t.Context())
			l.Context(job)
			cancel()
			l.Context(context.Background())
		}
		synctest.Wait()
		assert.Equal(t, 1, l.kept())
	})
}

// Package context follows a context that it does not know with a goroutine, unless it finds what
// cancels it.
func TestADerivedContextNeedsNoGoroutine(t *testing.T) {
	l := newLease(time.Hour)
	parent := t.Context()
	ctx := With(l.Context(parent), context.WithValue(context.Background(), mark{}, 1))
	before := runtime.NumGoroutine()
	for range 100 {
		_, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		context.AfterFunc(ctx, func() {})
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+10)
}

func TestAContextCostsOneAllocationAfterTheFirst(t *testing.T) {
	l := newLease(time.Hour)
	parent := t.Context()
	l.Context(parent)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { l.Context(parent) }), 1.0)
}

func TestWithAddsValues(t *testing.T) {
	cause := errors.New("cut off")
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), mark{}, 1))
	type other struct{}
	both := With(ctx, context.WithValue(context.WithValue(context.Background(), mark{}, 2), other{}, 3))
	assert.Equal(t, 1, both.Value(mark{}))
	assert.Equal(t, 3, both.Value(other{}))
	cancel(cause)
	assert.Equal(t, cause, context.Cause(both))
}

type noOwner struct{}

func (noOwner) Err() error { return nil }

// Otherwise AcquireAll of thirty keys took hours, and a hundred leases under each other for ever.
func TestAValueIsLookedForOnceHoweverManyLeasesTheContextHas(t *testing.T) {
	type key struct{}
	asked := new(counted)
	asked.Context = context.WithValue(t.Context(), key{}, 1)
	ctx := context.Context(asked)
	for range 200 {
		ctx = New(noOwner{}).Context(ctx)
	}
	asked.asked = 0
	for range 3 {
		if ctx.Value(key{}) != 1 || ctx.Value("another") != nil {
			t.Fatal("a wrong value")
		}
	}
	if asked.asked != 6 {
		t.Errorf("the parent was asked %d times for six values", asked.asked)
	}
	if owners := slices.Collect(Owners(ctx)); len(owners) != 200 {
		t.Errorf("%d owners", len(owners))
	}
}

type counted struct {
	context.Context
	asked int
}

func (c *counted) Value(key any) any { c.asked++; return c.Context.Value(key) }
