package doclock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/followtest"
	"github.com/mongolock/mongolock/store"
)

// inBulk is a feed that would send notices in bulk, if a test did.
type inBulk struct{ store.Feed }

func (inBulk) NotifyMany(context.Context, []store.Notice) error { return errors.ErrUnsupported }

func TestWaitingClaimsTryAFlappingFeedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &followtest.Flapping{}
		var s pools
		s.begin(&docStore{BulkFeed: inBulk{feed}})
		defer s.close()
		p, err := s.pool(nil, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		p.waiters.enter()
		defer p.waiters.leave()
		for s.sleep(ctx, p) == nil { // and then it would look for work
		}
		opened, tooOften := feed.TriedTooOften(10 * time.Minute)
		assert.False(t, tooOften, "opened %d times in ten minutes", opened)
		assert.Greater(t, opened, int64(50), "opened again")
	})
}
