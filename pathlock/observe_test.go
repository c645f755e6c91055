package pathlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/pathlock"
)

// A watcher is an observer that counts operations, writes down all that it is shown, and
// reads numbers.
type watcher struct {
	mu      sync.Mutex // protects what follows
	count   map[string]int
	text    string
	stats   func() mongolock.Stats
	stopped bool
}

func (o *watcher) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	return ctx, func(out mongolock.Outcome) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.count == nil {
			o.count = make(map[string]int)
		}
		o.count[fmt.Sprintf("%s %s %s %s", of.Package, of.Op, of.Key, mongolock.OutcomeOf(out.Err))]++
		o.text += fmt.Sprintf("%+v %+v\n", of, out)
	}
}

func (o *watcher) Watch(stats func() mongolock.Stats) (stop func()) {
	o.stats = stats
	return func() { o.stopped = true }
}

func TestAnObserverSeesLocksOfPathsWithoutTheirTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &watcher{}
		tree := files(pathlock.WithObserver(seen))
		ctx := t.Context()
		a, err := tree.Lock(ctx, lock("/a", pathlock.Exclusive, pathlock.Infinity))
		require.NoError(t, err)
		_, err = tree.Lock(ctx, lock("/a/b", pathlock.Shared, pathlock.Zero))
		require.ErrorIs(t, err, mongolock.ErrHeld)
		require.ErrorIs(t, err, pathlock.ErrConflict)
		_, err = tree.Refresh(ctx, a.Token)
		require.NoError(t, err)

		patience, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = tree.LockWait(patience, lock("/a", pathlock.Exclusive, pathlock.Zero))
		require.ErrorIs(t, err, context.DeadlineExceeded)

		waited := make(chan pathlock.Lock)
		go func() {
			l, err := tree.LockWait(ctx, lock("/a", pathlock.Exclusive, pathlock.Zero))
			assert.NoError(t, err)
			waited <- l
		}()
		time.Sleep(10 * time.Second)
		assert.Equal(t, 1, seen.stats().Waiters)
		assert.Equal(t, 10*time.Second, seen.stats().OldestWait)
		require.NoError(t, tree.Release(ctx, a.Token))
		b := <-waited
		assert.Zero(t, seen.stats().Waiters)
		time.Sleep(2 * time.Minute) // it runs out
		_, err = tree.Refresh(ctx, b.Token)
		require.ErrorIs(t, err, pathlock.ErrUnknownToken)

		stats := seen.stats()
		assert.Equal(t, "pathlock", stats.Package)
		assert.Equal(t, tree.Stats(), stats)
		require.NoError(t, tree.Close())
		assert.True(t, seen.stopped)
		assert.Equal(t, map[string]int{
			"pathlock acquire files:/a granted": 2,
			"pathlock acquire files:/a/b held":  1,
			"pathlock acquire files:/a timeout": 1,
			"pathlock wait files:/a granted":    1,
			"pathlock wait files:/a timeout":    1,
			"pathlock renew files granted":      1,
			"pathlock renew files lost":         1,
			"pathlock release files granted":    1,
		}, seen.count)
		assert.NotContains(t, seen.text, a.Token)
		assert.NotContains(t, seen.text, b.Token)
	})
}

func TestANilObserverIsRefused(t *testing.T) {
	_, err := pathlock.New(pathlock.InMemory(), "files", pathlock.WithObserver(nil))
	require.ErrorContains(t, err, "pathlock: WithObserver(nil): must not be nil")
}
