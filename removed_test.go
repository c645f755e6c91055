package mongolock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

// The removal of a record by hand is not announced, and the process's own waiter asked nothing
// while it believed the lease to be live.
func TestAWaiterNoticesWithinAMinuteThatItsOwnProcessesLeaseWasRemovedByHand(t *testing.T) {
	for name, opts := range map[string][]mongolock.AcquireOption{
		"without renewal":   {mongolock.TTL(24 * time.Hour), mongolock.NoRenewal()},
		"seldom renewed":    {mongolock.TTL(24 * time.Hour)},
		"renewed in a hour": {mongolock.TTL(3 * time.Hour)},
		"often renewed":     {mongolock.TTL(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				c := newClient(t, b)
				removed := acquire(t, c, "k", opts...)
				wait := inBackground(t.Context(), c, "k")
				time.Sleep(10 * time.Minute)
				require.NoError(t, removed.Err())
				b.Mem.Delete("k")
				start := time.Now()
				r := <-wait
				require.NoError(t, r.err)
				tookBetween(t, start, 0, time.Minute)
				assert.ErrorIs(t, removed.Err(), mongolock.ErrLost, "ended before the next grant")
				release(t, r.lease)
			})
		})
	}
}

func TestAWaiterBehindItsOwnProcessesLeaseReadsOnceAMinute(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k", mongolock.TTL(24*time.Hour), mongolock.NoRenewal())
		for range 50 {
			inBackground(t.Context(), c, "k", mongolock.MaxWait(20*time.Hour))
		}
		time.Sleep(time.Minute)
		b.Reset()
		time.Sleep(time.Hour)
		assert.Equal(t, b.Count(), b.Count(lab.Look), "all calls are reads")
		assert.LessOrEqual(t, b.Count(), 101, "and there are this many in an hour")
		assert.NoError(t, l.Err())
		assert.NoError(t, c.Close())
	})
}
