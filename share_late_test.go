package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// lateLooks answers a look with what was there long before.
type lateLooks struct{ *memstore.Store }

func (s lateLooks) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	time.Sleep(300 * time.Millisecond) // of the bubble: the writer asks again meanwhile
	return all, err
}

// Seed 205067 of the simulation: a look that was sent before the writer's last word and
// answered after it showed the word before, and only that was taken back.
func TestAWriterWhoGivesUpTakesBackItsLastWordWhateverALateLookShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := memstore.New()
		writers, err := mongolock.NewWithStore(lateLooks{kept})
		require.NoError(t, err)
		defer writers.Close()
		readers, err := mongolock.NewWithStore(kept)
		require.NoError(t, err)
		defer readers.Close()
		reads := func() *mongolock.Lease {
			t.Helper()
			lease, err := readers.Acquire(t.Context(), "k", mongolock.Shared())
			require.NoError(t, err)
			return lease
		}
		first, _ := reads(), reads()
		time.AfterFunc(100*time.Millisecond, func() { _ = first.Release() }) // has the writer ask again
		_, err = writers.Acquire(t.Context(), "k", mongolock.MaxWait(400*time.Millisecond))
		require.ErrorIs(t, err, mongolock.ErrHeld)
		time.Sleep(time.Millisecond) // it takes its word back in the background
		if s, err := readers.Inspect(t.Context(), "k"); err != nil || s.Reserved() {
			t.Errorf("its word stands until %v, and it is %v (%v)", s.ExclusiveWantedUntil, s.Now, err)
		}
	})
}
