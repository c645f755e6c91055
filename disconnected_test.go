package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

var errDisconnected = fmt.Errorf("client is disconnected (%w; %w)", store.ErrDisconnected, store.ErrNotApplied)

func TestAWaitEndsWhenTheStoreIsDisconnectedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		holder := lab.Client(t, mem)
		lease, err := holder.Acquire(t.Context(), "k", mongolock.TTL(time.Minute))
		require.NoError(t, err)

		s := lab.New(mem)
		client := lab.Client(t, s, mongolock.WithoutFeed())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		waits := make(chan error, 3)
		for range cap(waits) {
			go func() {
				_, err := client.Acquire(ctx, "k")
				waits <- err
			}()
		}
		time.Sleep(10 * time.Minute)
		assert.Empty(t, waits, "a wait ended while the key was held")
		s.On(lab.Acquire, lab.Fail(errDisconnected))
		s.On(lab.Look, lab.Fail(errDisconnected))
		asked, began := s.Count(lab.Acquire), time.Now()
		for range cap(waits) {
			err := <-waits
			require.ErrorIs(t, err, mongolock.ErrDisconnected)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		}
		assert.LessOrEqual(t, time.Since(began), 3*time.Minute)
		assert.LessOrEqual(t, s.Count(lab.Acquire)-asked, cap(waits))
		_, err = client.Acquire(t.Context(), "k")
		assert.ErrorIs(t, err, mongolock.ErrDisconnected, "a later Acquire")
		require.NoError(t, lease.Release())
		require.NoError(t, errors.Join(client.Close(), holder.Close()))
	})
}
