package mongolock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
)

// Who is granted a permit tells the first behind it that allows more, also if a dead waiter stands between.
func TestADeadWaiterHidesNoneBehindItThatAllowsMorePermits(t *testing.T) {
	for mode, limit := range map[store.Mode]int{store.Permits: 2, store.Exclusive: 1} {
		t.Run(string(mode), func(t *testing.T) {
			lab.Test(t, func(t *testing.T, s *lab.Store) {
				holder := newClient(t, s)
				one, two := acquire(t, holder, "k", mongolock.OneOf(2)), acquire(t, holder, "k", mongolock.OneOf(2))
				waits := []<-chan result{inBackground(t.Context(), newClient(t, s), "k", mongolock.OneOf(2))}
				time.Sleep(time.Second)
				_, err := s.Acquire(t.Context(), store.Claim{
					Ref: store.Ref{Key: "k", ID: "dead", Mode: mode}, Limit: limit, TTL: time.Minute, Place: store.NewPlace(mode, limit, 1, "dead"),
				})
				require.ErrorIs(t, err, mongolock.ErrHeld)
				for range 2 {
					waits = append(waits, inBackground(t.Context(), newClient(t, s), "k", mongolock.OneOf(4)))
					time.Sleep(time.Second)
				}
				time.Sleep(2 * store.PlaceFor)
				freed := time.Now()
				release(t, one)
				for i, wait := range waits {
					r := <-wait
					require.NoError(t, r.err)
					assert.Zero(t, r.when.Sub(freed), "until waiter %d has its permit", i)
					defer release(t, r.lease)
				}
				release(t, two)
			})
		})
	}
}
