package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/kit/followtest"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store/memstore"
)

// flappingStore is a store whose feed opens and breaks at once.
type flappingStore struct {
	noFeed
	*followtest.Flapping
}

func TestWatchTriesAFlappingFeedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &followtest.Flapping{}
		client := lab.Client(t, flappingStore{noFeed{memstore.New()}, feed})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		for _, err := range leader.Watch(ctx, client, "billing") {
			assert.NoError(t, err)
		}
		opened, tooOften := feed.TriedTooOften(10 * time.Minute)
		assert.False(t, tooOften, "opened %d times in ten minutes", opened)
		assert.Greater(t, opened, int64(50), "opened again")
	})
}
