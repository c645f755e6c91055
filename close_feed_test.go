package mongolock_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A slowFarewell is a store whose feed takes a second to end, as one does that tells a server which
// hangs to close its cursor.
type slowFarewell struct{ *hookedStore }

func (f slowFarewell) Notify(ctx context.Context, all ...store.Notice) error {
	return f.mem.Notify(ctx, all...)
}

func (f slowFarewell) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		defer time.Sleep(time.Second)
		f.mem.Watch(ctx, of)(yield)
	}
}

func TestCloseTakesTheMarginAndFiveSecondsThoughTheFeedIsSlowToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		const margin = 2 * time.Second
		c := newClient(t, slowFarewell{b}, mongolock.WithMargin(margin))
		acquire(t, newClient(t, b.mem), "another's")
		acquire(t, c, "k")
		waits := inBackground(t.Context(), c, "another's")
		time.Sleep(time.Second)
		b.hook(func(h *hooks) {
			h.release = func(ctx context.Context, _ store.Ref, _ func() (store.Ended, error)) (store.Ended, error) {
				return store.Ended{}, untilDone(ctx)
			}
		})
		start := time.Now()
		assert.Error(t, c.Close())
		tookBetween(t, start, margin+5*time.Second, margin+5*time.Second)
		assert.ErrorIs(t, (<-waits).err, mongolock.ErrClosed)
	})
}
