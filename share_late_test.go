package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A lateLookStore answers a look with what was there 300 ms before.
type lateLookStore struct{ *memstore.Store }

func (s lateLookStore) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	time.Sleep(300 * time.Millisecond) // the writer asks again meanwhile
	return all, err
}

// Seed 205067 of the simulation: a look was sent before the writer left its last word, and
// answered afterwards. It showed the word before the last, and only that was withdrawn.
func TestALateLookDoesNotKeepAWriterFromWithdrawingItsWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := memstore.New()
		writers, err := mongolock.NewWithStore(lateLookStore{kept})
		require.NoError(t, err)
		defer writers.Close()
		readers, err := mongolock.NewWithStore(kept)
		require.NoError(t, err)
		defer readers.Close()
		first := acquire(t, readers, "k", mongolock.Shared())
		acquire(t, readers, "k", mongolock.Shared())
		time.AfterFunc(100*time.Millisecond, func() { _ = first.Release() }) // makes the writer ask again
		_, err = writers.Acquire(t.Context(), "k", mongolock.MaxWait(400*time.Millisecond))
		require.ErrorIs(t, err, mongolock.ErrHeld)
		time.Sleep(time.Millisecond) // the word is withdrawn in the background
		s, err := readers.Inspect(t.Context(), "k")
		require.NoError(t, err)
		assert.False(t, s.Reserved(), "the word stands until %v, and it is %v", s.ExclusiveWantedUntil, s.Now)
	})
}
