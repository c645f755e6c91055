package mongolock_test

import (
	"context"
	"fmt"
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

func TestAReaderWhoseWriterWasServedAndRanOutDoesNotWaitForTheEndOfItsWord(t *testing.T) {
	for name, late := range map[string]time.Duration{
		"served at once":                         time.Millisecond,
		"served after the reader saw a free key": 300 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) { readsAfterItsWriter(t, late) })
	}
}

// readsAfterItsWriter has a writer with a word be served late after the reader before it is over.
func readsAfterItsWriter(t *testing.T, late time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		claims := 0
		claim := func(mode store.Mode, ttl, want time.Duration) error { // of a process that is killed
			claims++
			limit := 0
			if mode == store.Exclusive {
				limit = 1
			}
			_, err := s.Acquire(t.Context(), store.Claim{
				Ref: store.Ref{Key: "k", ID: fmt.Sprint("dead-", claims), Mode: mode}, Limit: limit, TTL: ttl, Want: want, Owner: "dead",
			})
			return err
		}
		require.NoError(t, claim(store.Shared, 3*time.Second, 0))
		require.ErrorIs(t, claim(store.Exclusive, 30*time.Second, time.Minute), store.ErrHeld) // its word keeps readers out for 30 s
		began := time.Now()
		wait := inBackground(t.Context(), newClient(t, s), "k", mongolock.Shared())
		time.Sleep(3*time.Second + late) // virtual: the reader that was there is over
		require.NoError(t, claim(store.Exclusive, 2*time.Second, 0))
		r := <-wait
		require.NoError(t, r.err)
		assert.InDelta(t, (5*time.Second + late).Seconds(), r.when.Sub(began).Seconds(), 0.1, "the writer is over after some five seconds, and its word after thirty")
		release(t, r.lease)
	})
}
