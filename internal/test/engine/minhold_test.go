package engine_test

import (
	"context"
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

// Found by the simulation: a caller gave up, the grant that came later was given back
// under its MinHold, and the key stayed held although no caller had a lease of it.
func TestMinHoldDoesNotKeepAGrantThatNoCallerReceived(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		b.On(lab.Acquire, lab.Slow(0, 2*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newClient(t, b).TryAcquire(ctx, "k", mongolock.MinHold(20*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(1100 * time.Millisecond) // the reply comes, and the grant is given back
		mustBeFree(t, b, "k")
	})
}

func TestAWaiterThatReadsOfAnEarlierEndAsksThen(t *testing.T) {
	for _, released := range []time.Duration{10 * time.Millisecond, 60 * time.Millisecond, 90 * time.Millisecond} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			held := acquire(t, newClient(t, b.Mem), "k", mongolock.MinHold(10*time.Second))
			granted := time.Now()
			time.Sleep(time.Second)
			b.On(lab.Watch, lab.Slow(100*time.Millisecond, 0)) // earlier announcements are missed
			wait := inBackground(t.Context(), newClient(t, b), "k")
			time.Sleep(released)
			release(t, held)
			r := <-wait
			require.NoError(t, r.err)
			assert.Less(t, r.when.Sub(granted), 11*time.Second, "the TTL would have ended later")
		})
	}
}

// The second in line learns of the new end too, so that a dead first one costs it two seconds.
func TestADeadWaiterHidesNoEndByMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		held := acquire(t, newClient(t, s), "k", mongolock.MinHold(3*time.Second), mongolock.TTL(time.Minute))
		granted := time.Now()
		_, err := s.Acquire(t.Context(), store.Claim{
			Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: time.Minute,
			Owner: "dead", Place: store.NewPlace(store.Exclusive, 1, 1, "dead"),
		})
		require.ErrorIs(t, err, mongolock.ErrHeld)
		wait := inBackground(t.Context(), newClient(t, s), "k")
		time.Sleep(time.Second)
		release(t, held)
		r := <-wait
		require.NoError(t, r.err)
		assert.Less(t, r.when.Sub(granted), 5500*time.Millisecond) // a look a second after the end, and the second of the first
	})
}

// Nobody tells of the end of a holder that was released under MinHold, and its waiter does not know
// that the others leave before.
func TestAWaiterComesWhenTheLastOfSeveralHoldersEndsUnderMinHold(t *testing.T) {
	for _, waits := range [][]mongolock.AcquireOption{nil, {mongolock.OneOf(4), mongolock.Weight(4)}} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			one, two := newClient(t, b), newClient(t, b)
			start := time.Now()
			kept := acquire(t, one, "k", mongolock.OneOf(4), mongolock.MinHold(3*time.Second))
			other := acquire(t, one, "k", mongolock.OneOf(4))
			wait := inBackground(t.Context(), two, "k", waits...)
			time.Sleep(time.Second)
			release(t, kept)
			time.Sleep(time.Second)
			release(t, other)
			r := <-wait
			require.NoError(t, r.err)
			tookBetween(t, start, 3*time.Second, 3100*time.Millisecond)
			release(t, r.lease)
			mustBeFree(t, b, "k")
		})
	}
}

// One that waited for all permits, or for more than one, and leaves: those behind it need less, and
// nobody tells of the end of a holder that was released under MinHold.
func TestThoseBehindOneThatLeavesComeWhenAHolderEndsUnderMinHold(t *testing.T) {
	for _, waits := range [][]mongolock.AcquireOption{nil, {mongolock.OneOf(2), mongolock.Weight(2)}} {
		for _, dead := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				one := newClient(t, s)
				start := time.Now()
				kept := acquire(t, one, "k", mongolock.OneOf(2), mongolock.MinHold(4*time.Second), mongolock.TTL(time.Minute))
				other := acquire(t, one, "k", mongolock.OneOf(2), mongolock.TTL(time.Minute))
				ctx, leave := context.WithTimeout(t.Context(), 3*time.Second)
				defer leave()
				leaves := inBackground(ctx, newClient(t, s), "k", waits...)
				time.Sleep(500 * time.Millisecond)
				if dead {
					standAs(t, s, store.Permits, 2, "dead", "dead")
				}
				wait := inBackground(t.Context(), newClient(t, s), "k", mongolock.OneOf(2))
				time.Sleep(500 * time.Millisecond)
				release(t, kept)
				require.Error(t, (<-leaves).err)
				r := <-wait
				require.NoError(t, r.err)
				tookBetween(t, start, 4*time.Second, 6100*time.Millisecond) // a look a second after the end, and the second of a dead one
				release(t, r.lease)
				release(t, other)
			})
		}
	}
}

// The same where a holder dies: the one behind did not look for its end, as the one before it waited for all permits.
func TestThoseBehindOneThatLeavesComeWhenAHolderRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		start := time.Now()
		_, err := s.Acquire(t.Context(), store.Claim{Ref: store.Ref{Key: "k", ID: "dies", Mode: store.Permits}, Limit: 2, TTL: 20 * time.Second, Owner: "dead"})
		require.NoError(t, err)
		other := acquire(t, newClient(t, s), "k", mongolock.OneOf(2), mongolock.TTL(time.Minute))
		ctx, leave := context.WithTimeout(t.Context(), 2*time.Second)
		defer leave()
		leaves := inBackground(ctx, newClient(t, s), "k", mongolock.OneOf(2), mongolock.Weight(2))
		time.Sleep(500 * time.Millisecond)
		wait := inBackground(t.Context(), newClient(t, s), "k", mongolock.OneOf(2))
		require.Error(t, (<-leaves).err)
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, start, 20*time.Second, 21*time.Second)
		release(t, r.lease)
		release(t, other)
	})
}
