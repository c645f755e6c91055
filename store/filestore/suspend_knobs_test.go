//go:build knobs

package filestore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/hostfile/disktest"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/store/filestore"
)

// afterASuspend suspends the machine of a holder for an hour. The host's wall clock counts
// that time; with counted the source of package suspend does as well. It returns the lease,
// and the error of another process's claim that follows at once.
func afterASuspend(t *testing.T, counted bool) (lease *mongolock.Lease, claim error) {
	var slept time.Duration
	before := knob.Sleeper
	t.Cleanup(func() { knob.Sleeper = before })
	knob.Sleeper = func() func() time.Duration {
		return func() time.Duration {
			if counted {
				return slept
			}
			return 0
		}
	}
	wall := filestore.WithClock(func() time.Time { return time.Now().Add(slept) })
	dir := disktest.InMemory(t)
	var clients [2]*mongolock.Client
	for i := range clients {
		client, err := mongolock.NewWithStore(open(t, dir, wall))
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		clients[i] = client
	}
	lease, err := clients[0].Acquire(t.Context(), "k")
	require.NoError(t, err)

	slept = time.Hour
	next, claim := clients[1].TryAcquire(t.Context(), "k")
	if claim == nil {
		assert.Greater(t, next.Token(), lease.Token())
	}
	return lease, claim
}

// Without the time asleep two processes have the key at once, until the next renewal.
func TestControlALeaseThatDoesNotCountTimeAsleepIsTrustedTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, claim := afterASuspend(t, false)
		require.NoError(t, claim)
		require.NoError(t, lease.Err())
	})
}
