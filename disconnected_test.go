package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

var errDisconnected = fmt.Errorf("client is disconnected (%w; %w)", store.ErrDisconnected, store.ErrNotApplied)

// A disconnectableStore refuses every call once it is disconnected while its client is in use.
type disconnectableStore struct {
	store.Store
	disconnected atomic.Bool
	claims       atomic.Int32
}

func (s *disconnectableStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.claims.Add(1)
	if s.disconnected.Load() {
		return store.Grant{}, errDisconnected
	}
	return s.Store.Acquire(ctx, c)
}

func (s *disconnectableStore) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if s.disconnected.Load() {
		return nil, errDisconnected
	}
	return s.Store.Look(ctx, keys)
}

func TestAWaitEndsWhenTheStoreIsDisconnectedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		holder, err := mongolock.NewWithStore(mem)
		require.NoError(t, err)
		lease, err := holder.Acquire(t.Context(), "k", mongolock.TTL(time.Minute))
		require.NoError(t, err)

		s := &disconnectableStore{Store: mem}
		client, err := mongolock.NewWithStore(s)
		require.NoError(t, err)
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
		s.disconnected.Store(true)
		asked, began := s.claims.Load(), time.Now()
		for range cap(waits) {
			err := <-waits
			require.ErrorIs(t, err, mongolock.ErrDisconnected)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		}
		assert.LessOrEqual(t, time.Since(began), 3*time.Minute)
		assert.LessOrEqual(t, s.claims.Load()-asked, int32(cap(waits)))
		_, err = client.Acquire(t.Context(), "k")
		assert.ErrorIs(t, err, mongolock.ErrDisconnected, "a later Acquire")
		require.NoError(t, lease.Release())
		require.NoError(t, errors.Join(client.Close(), holder.Close()))
	})
}
