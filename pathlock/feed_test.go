package pathlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/follow/followtest"
	"github.com/mongolock/mongolock/pathlock"
)

func TestWaitersTryAFlappingFeedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage, feed := pathlock.InMemory(), &followtest.Flapping{}
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
