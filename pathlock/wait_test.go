package pathlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/followtest"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/store"
)

func TestWaitersTryAFlappingFeedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage, feed := pathlock.NewMemory(), &followtest.Flapping{}
		storage.Feed = feed
		tree := treeOn(t, storage)
		_, err := tree.Lock(t.Context(), exclusive("/a", time.Hour))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err = tree.LockWait(ctx, exclusive("/a", time.Hour))
		require.ErrorIs(t, err, pathlock.ErrConflict)
		opened, tooOften := feed.TriedTooOften(10 * time.Minute)
		assert.False(t, tooOften, "opened %d times in ten minutes", opened)
		assert.Greater(t, opened, int64(50), "opened again")
	})
}

// disconnecting is a storage that can be disconnected for good.
type disconnecting struct {
	*pathlock.Memory
	gone atomic.Bool
}

func (s *disconnecting) Update(ctx context.Context, tree string, change func(*pathlock.Document, pathlock.Clock)) (time.Time, error) {
	if s.gone.Load() {
		return time.Time{}, fmt.Errorf("client is disconnected (%w; %w)", store.ErrDisconnected, store.ErrNotApplied)
	}
	return s.Memory.Update(ctx, tree, change)
}

func TestAWaitEndsWhenTheStorageIsDisconnectedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := &disconnecting{Memory: pathlock.NewMemory()}
		tree := treeOn(t, onDocuments(t, storage))
		_, err := tree.Lock(t.Context(), exclusive("/a", time.Hour))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		time.AfterFunc(time.Minute, func() { storage.gone.Store(true) })
		_, err = tree.LockWait(ctx, exclusive("/a", time.Hour))
		assert.ErrorIs(t, err, store.ErrDisconnected)
	})
}
