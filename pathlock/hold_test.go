package pathlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/pathlock/pathlocktest"
)

var docs = pathlock.Request{Path: "/docs"}

func TestAHoldLastsLongerThanItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := pathlocktest.New(t)
		h, err := tree.Tree.Hold(t.Context(), docs)
		require.NoError(t, err)
		assert.Equal(t, 30*time.Second, h.Lock.Timeout)
		for range 100 {
			time.Sleep(11 * time.Second)
			require.NoError(t, h.Err())
			require.Greater(t, h.Remaining(), 15*time.Second)
		}
		require.NoError(t, h.Release())
		assert.ErrorIs(t, h.Err(), mongolock.ErrReleased)
		all, err := tree.Locks(t.Context())
		require.NoError(t, err)
		assert.Empty(t, all)
		assert.NoError(t, h.Release(), "once more")
	})
}

// Trust ends a margin before the storage can grant the path again.
func TestAHoldEndsBeforeItsPathCanBeAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := pathlocktest.New(t)
		h, err := tree.Tree.Hold(t.Context(), docs)
		require.NoError(t, err)
		ctx := h.Context(t.Context())
		tree.Fail(errors.New("no route to host"))
		<-h.Done()
		assert.ErrorIs(t, h.Err(), mongolock.ErrLost)
		assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrLost)
		assert.Zero(t, h.Remaining())
		tree.Fail(nil)
		on, err := tree.Affecting(t.Context(), "/docs", pathlock.Zero)
		require.NoError(t, err)
		require.Len(t, on.Same, 1, "it was over too late")
		assert.GreaterOrEqual(t, on.Same[0].Left, time.Second)
		time.Sleep(on.Same[0].Left)
		release := tree.Hold(docs) // another process has it
		assert.NoError(t, h.Release())
		release()
	})
}

// The control: without a margin it may be another's at once.
func TestControlWithoutAMarginAHoldEndsWhenItsPathIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := pathlocktest.New(t, pathlock.WithMargin(0))
		h, err := tree.Tree.Hold(t.Context(), docs)
		require.NoError(t, err)
		tree.Fail(errors.New("no route to host"))
		<-h.Done()
		tree.Fail(nil)
		on, err := tree.Affecting(t.Context(), "/docs", pathlock.Zero)
		require.NoError(t, err)
		assert.Empty(t, on.Same)
	})
}

func TestAHoldOutlivesAnOutageOfHalfItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := pathlocktest.New(t)
		h, err := tree.Tree.Hold(t.Context(), docs)
		require.NoError(t, err)
		for range 5 {
			tree.Fail(errors.New("no route to host"))
			time.Sleep(15 * time.Second)
			tree.Fail(nil)
			time.Sleep(5 * time.Second)
			require.NoError(t, h.Err())
		}
		require.NoError(t, h.Release())
	})
}

func TestAHoldThatIsTakenAwayIsLostAtItsNextRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tree := pathlocktest.New(t, pathlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		began := time.Now()
		err := tree.Do(t.Context(), docs, func(ctx context.Context, h *pathlock.Hold) error {
			tree.Lose("/docs")
			<-ctx.Done()
			return fmt.Errorf("stopped: %w", ctx.Err())
		})
		assert.ErrorIs(t, err, mongolock.ErrLost)
		assert.ErrorIs(t, err, context.Canceled, "fn's own error")
		assert.Equal(t, 10*time.Second, time.Since(began).Round(time.Second))
		assert.Contains(t, log.String(), "a hold is lost")
		assert.NotContains(t, log.String(), "urn:uuid", "a token is as good as the lock")
	})
}

func TestDoReleasesWhateverItsFunctionDoes(t *testing.T) {
	tree := newTree(t)
	failed := errors.New("failed")
	for what, fn := range map[string]func(context.Context, *pathlock.Hold) error{
		"returns":  func(context.Context, *pathlock.Hold) error { return nil },
		"fails":    func(context.Context, *pathlock.Hold) error { return failed },
		"panics":   func(context.Context, *pathlock.Hold) error { panic("fn panics") },
		"releases": func(_ context.Context, h *pathlock.Hold) error { return h.Release() },
	} {
		func() {
			defer func() { assert.Equal(t, what == "panics", recover() != nil, what) }()
			ran, err := tree.TryDo(t.Context(), docs, fn)
			assert.True(t, ran, what)
			assert.Equal(t, what == "fails", errors.Is(err, failed), what)
			assert.Equal(t, what != "fails", err == nil, "%s: %v", what, err)
		}()
		all, err := tree.Locks(t.Context())
		require.NoError(t, err)
		assert.Empty(t, all, what)
	}
	assert.ErrorContains(t, tree.Do(t.Context(), docs, nil), "fn is nil")
	_, err := tree.TryDo(t.Context(), docs, nil)
	assert.ErrorContains(t, err, "fn is nil")
}

func TestDoWaitsAndTryDoDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := pathlocktest.New(t)
		release := tree.Hold(docs)
		time.AfterFunc(time.Minute, release)
		fn := func(context.Context, *pathlock.Hold) error { return nil }
		ran, err := tree.TryDo(t.Context(), docs, fn)
		assert.False(t, ran)
		assert.NoError(t, err)
		_, err = tree.TryHold(t.Context(), docs)
		assert.ErrorIs(t, err, pathlock.ErrConflict)
		began := time.Now()
		assert.NoError(t, tree.Do(t.Context(), docs, fn))
		assert.GreaterOrEqual(t, time.Since(began), time.Minute)
	})
}

// The time of a Hold that waited counts from the attempt that was granted.
func TestAHoldThatWaitedForLongHasItsWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := pathlocktest.New(t)
		release := tree.Hold(docs)
		time.AfterFunc(time.Hour, release)
		h, err := tree.Tree.Hold(t.Context(), docs)
		require.NoError(t, err)
		assert.Equal(t, 29*time.Second, h.Remaining())
	})
}

func TestAHoldIsRefusedForOptionsThatMakeNoSense(t *testing.T) {
	tree := newTree(t, pathlock.WithLimits(pathlock.Limits{Infinite: true}), pathlock.WithMargin(10*time.Second))
	for want, timeout := range map[string]time.Duration{
		"the timeout is Infinite":                       pathlock.Infinite,
		"WithMargin(10s): must be at most half":         15 * time.Second,
		"Request.Timeouts[0] is 1ms: must be 100ms to ": time.Millisecond,
	} {
		r := docs
		r.Timeouts = []time.Duration{timeout}
		h, err := tree.Hold(t.Context(), r)
		assert.Nil(t, h)
		assert.ErrorContains(t, err, want)
	}
	all, err := tree.Locks(t.Context())
	require.NoError(t, err)
	assert.Empty(t, all)
}

func TestCloseEndsAndReleasesHoldsAndNoOtherLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		tree, other := treeOn(t, storage), treeOn(t, storage)
		_, err := tree.Lock(t.Context(), pathlock.Request{Path: "/kept"})
		require.NoError(t, err)
		h, err := tree.Hold(t.Context(), docs)
		require.NoError(t, err)
		require.NoError(t, tree.Close())
		assert.ErrorIs(t, h.Err(), pathlock.ErrClosed)
		assert.ErrorIs(t, h.Err(), mongolock.ErrClosed)
		all, err := other.Locks(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		assert.Equal(t, "/kept", all[0].Path)
		_, err = tree.Hold(t.Context(), docs)
		assert.ErrorIs(t, err, pathlock.ErrClosed)
	})
}

func TestADetachedHoldIsResumedByAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		one, two := treeOn(t, storage), treeOn(t, storage)
		h, err := one.Hold(t.Context(), docs)
		require.NoError(t, err)
		require.NoError(t, h.Detach())
		assert.ErrorIs(t, h.Err(), mongolock.ErrDetached)
		require.NoError(t, one.Close())
		time.Sleep(29 * time.Second)
		h, err = two.Resume(t.Context(), h.Lock)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, h.Err())
		require.NoError(t, h.Release())
		_, err = two.Resume(t.Context(), h.Lock)
		assert.ErrorIs(t, err, pathlock.ErrUnknownToken)
	})
}

// The timeout that a client asked for does not begin again because its lock is used for a moment.
func TestAResumedLockIsRefreshedShortlyBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t)
		r := docs
		r.Timeouts = []time.Duration{10 * time.Minute}
		l, err := tree.Lock(t.Context(), r)
		require.NoError(t, err)
		h, err := tree.Resume(t.Context(), l)
		require.NoError(t, err)
		time.Sleep(9 * time.Minute)
		require.NoError(t, h.Detach())
		all, err := tree.Locks(t.Context())
		require.NoError(t, err)
		assert.Equal(t, l.ExpireAt, all[0].ExpireAt, "refreshed without need")
		h, err = tree.Resume(t.Context(), l)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.NoError(t, h.Err())
		require.NoError(t, h.Release())
	})
}

// A refresh that shortened the lock would move its end to before that of the hold's trust.
func TestARenewalKeepsTheTimeoutOfALockThatTheLimitsHereDoNotAllow(t *testing.T) {
	for _, timeout := range []time.Duration{time.Hour, pathlock.Infinite} {
		synctest.Test(t, func(t *testing.T) {
			storage := pathlock.InMemory()
			one := treeOn(t, storage, pathlock.WithLimits(pathlock.Limits{Infinite: true}))
			two := treeOn(t, storage, pathlock.WithLimits(pathlock.Limits{Most: time.Minute}))
			r := docs
			r.Timeouts = []time.Duration{timeout}
			l, err := one.Lock(t.Context(), r)
			require.NoError(t, err)
			h, err := two.Resume(t.Context(), l)
			require.NoError(t, err)
			require.NoError(t, h.Renew(t.Context()))
			time.Sleep(2 * time.Minute)
			require.NoError(t, h.Err())
			_, err = one.Lock(t.Context(), r)
			assert.ErrorIs(t, err, pathlock.ErrConflict, "%v: another is granted a path that is held", timeout)
			require.NoError(t, h.Release())
		})
	}
}

// Two processes have one lock, and the first is no longer there when the second relies on its longer time.
func TestARenewalLeavesALongerTimeoutAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		one, two := treeOn(t, storage), treeOn(t, storage, pathlock.WithLimits(pathlock.Limits{Most: time.Hour}))
		first, err := one.Hold(t.Context(), docs)
		require.NoError(t, err)
		_, err = two.Refresh(t.Context(), first.Lock.Token, time.Hour)
		require.NoError(t, err)
		second, err := two.Resume(t.Context(), first.Lock)
		require.NoError(t, err)
		time.Sleep(time.Minute) // the first is renewed twice
		require.NoError(t, first.Detach())
		time.Sleep(time.Minute)
		require.NoError(t, second.Err())
		_, err = one.TryHold(t.Context(), docs)
		assert.ErrorIs(t, err, pathlock.ErrConflict, "another is granted a path that is held")
		require.NoError(t, second.Release())
	})
}

// A refresh on MongoDB that shortens a lock writes the timeout before the end. Its process may die
// between the two.
func TestAResumedLockIsTrustedNoLongerThanItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := pathlock.NewMemory()
		tree := treeOn(t, onDocuments(t, m))
		r := docs
		r.Timeouts = []time.Duration{time.Hour}
		l, err := tree.Lock(t.Context(), r)
		require.NoError(t, err)
		l.Timeout = time.Minute
		_, err = m.Update(t.Context(), "tree", func(d *pathlock.Document, _ pathlock.Clock) { d.Put(l) })
		require.NoError(t, err)
		h, err := tree.Resume(t.Context(), l)
		require.NoError(t, err)
		require.NoError(t, h.Renew(t.Context()))
		on, err := tree.Affecting(t.Context(), "/docs", pathlock.Zero)
		require.NoError(t, err)
		require.Len(t, on.Same, 1)
		assert.Less(t, h.Remaining(), on.Same[0].Left)
		require.NoError(t, h.Release())
	})
}
