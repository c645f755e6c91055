package mongolock_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
)

// A slowFarewell is a store whose feed takes a second to end, as one does that tells a server which
// hangs to close its cursor.
type slowFarewell struct{ *lab.Store }

func (f slowFarewell) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		defer time.Sleep(time.Second)
		f.Mem.Watch(ctx, of)(yield)
	}
}

func TestCloseTakesTheMarginAndFiveSecondsThoughTheFeedIsSlowToEnd(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		const margin = 2 * time.Second
		c := newClient(t, slowFarewell{b}, mongolock.WithMargin(margin))
		acquire(t, newClient(t, b.Mem), "another's")
		acquire(t, c, "k")
		waits := inBackground(t.Context(), c, "another's")
		time.Sleep(time.Second)
		b.On(lab.Release, lab.Hang)
		start := time.Now()
		assert.Error(t, c.Close())
		tookBetween(t, start, margin+5*time.Second, margin+5*time.Second)
		assert.ErrorIs(t, (<-waits).err, mongolock.ErrClosed)
	})
}
