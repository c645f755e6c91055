package doclock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/followtest"
)

func TestWaitingClaimsTryAFlappingFeedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &followtest.Flapping{}
		var s pools
		s.begin(&docStore{Feed: feed})
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
