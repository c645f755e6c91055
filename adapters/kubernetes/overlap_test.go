package kubelock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	kubelock "github.com/mongolock/mongolock/adapters/kubernetes"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A lateStore answers renewals late, each by its delay, and after the last of them never:
// the database is out of reach.
type lateStore struct {
	store.Store
	delays  []time.Duration
	renewed atomic.Int32
}

func (s *lateStore) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	n := int(s.renewed.Add(1)) - 1
	gone := make([]store.Renewed, len(batch))
	if n >= len(s.delays) {
		<-ctx.Done()
		for i := range gone {
			gone[i].Err = ctx.Err()
		}
		return gone
	}
	answers := s.Store.Renew(ctx, batch)
	select {
	case <-time.After(s.delays[n]):
		return answers
	case <-ctx.Done():
		for i := range gone {
			gone[i].Err = ctx.Err()
		}
		return gone
	}
}

func (s *lateStore) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if int(s.renewed.Load()) > len(s.delays) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Look(ctx, keys)
}

// growing are replies that take longer and longer: a renewal waits up to a tenth of the TTL,
// and up to a third if the ones before were slow.
var growing = []time.Duration{1400 * time.Millisecond, 2700 * time.Millisecond, 4900 * time.Millisecond}

// cutOff lets an elector lead while its replies get late and then stop coming. Another
// process waits for the key. It returns how long before the other's grant the elector
// stopped, and how long before it the work's context ended.
func cutOff(t *testing.T, timing kubelock.Timing, delays []time.Duration) (stopped, ended time.Duration) {
	t.Helper()
	s := memstore.New()
	l, err := kubelock.New(client(t, &lateStore{Store: s, delays: delays}), key, "host-a", timing)
	require.NoError(t, err)
	over := make(chan term, 1)
	go func() { over <- run(quiet(t), l) }()
	time.Sleep(time.Millisecond) // virtual: until it leads
	require.NotNil(t, l.Lease(), "it leads")

	other := client(t, s)
	lease, err := other.Acquire(t.Context(), key, mongolock.TTL(time.Minute))
	granted := time.Now()
	require.NoError(t, err)
	defer func() { assert.NoError(t, lease.Release()) }()
	did := <-over
	require.False(t, did.began.IsZero())
	return granted.Sub(did.stopped), granted.Sub(did.ended)
}

func TestAnElectorStopsBeforeAnotherCanLead(t *testing.T) {
	for n := range 12 {
		for _, late := range []time.Duration{0, 300 * time.Millisecond, 1400 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d renewals, late by %v", n, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					delays := make([]time.Duration, n)
					for i := range delays {
						delays[i] = late
					}
					stopped, ended := cutOff(t, kubelock.Timing{}, delays)
					assert.Positive(t, stopped, "the elector stopped when another could lead")
					assert.Positive(t, ended)
				})
			})
		}
	}
}

func TestAnElectorWhoseRepliesGetSlowStopsBeforeAnotherCanLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped, ended := cutOff(t, kubelock.Timing{}, growing)
		assert.Positive(t, stopped, "the elector stopped when another could lead")
		assert.Positive(t, ended)
	})
}

// The control of the test above: on a lock that lets an elector go on with what is left after
// a slow reply, as a Lease object does, it stops too late. Even then the context of its work
// has ended.
func TestControlAnElectorThatIgnoresTheTimeLeftStopsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kubelock.TrustAnyLease(t)
		stopped, ended := cutOff(t, kubelock.Timing{}, growing)
		assert.Negative(t, stopped, "nothing was noticed: the test above proves nothing")
		assert.Positive(t, ended)
	})
}
