package mongolock_test

import (
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

func TestAReaderWhoseWriterWasServedAndRanOutDoesNotWaitForTheEndOfItsPlace(t *testing.T) {
	for name, late := range map[string]time.Duration{
		"served at once":                         time.Millisecond,
		"served after the reader saw a free key": 300 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) { readsAfterItsWriter(t, late) })
	}
}

// readsAfterItsWriter has a writer in line be served late after the reader before it is over.
func readsAfterItsWriter(t *testing.T, late time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		claims := 0
		claim := func(mode store.Mode, ttl time.Duration, p store.Place) error { // of a process that is killed
			claims++
			limit := 0
			if mode == store.Exclusive {
				limit = 1
			}
			_, err := s.Acquire(t.Context(), store.Claim{
				Ref: store.Ref{Key: "k", ID: fmt.Sprint("dead-", claims), Mode: mode}, Limit: limit, TTL: ttl, Place: p, Owner: "dead",
			})
			return err
		}
		require.NoError(t, claim(store.Shared, 3*time.Second, ""))
		place := store.NewPlace(store.Exclusive, 1, 1, "dead")
		require.ErrorIs(t, claim(store.Exclusive, 30*time.Second, place), store.ErrHeld) // its place keeps readers out for 30 s
		began := time.Now()
		wait := inBackground(t.Context(), newClient(t, s), "k", mongolock.Shared())
		time.Sleep(3*time.Second + late) // virtual: the reader that was there is over
		require.NoError(t, claim(store.Exclusive, 2*time.Second, place))
		r := <-wait
		require.NoError(t, r.err)
		assert.InDelta(t, (5*time.Second + late).Seconds(), r.when.Sub(began).Seconds(), 0.1, "the writer is over after some five seconds, and its place would be after thirty")
		release(t, r.lease)
	})
}
