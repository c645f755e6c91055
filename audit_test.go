package mongolock_test

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
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestAnAcquireAllThatFailsLeavesNothingBehindWhateverItsMinHold(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		held := acquire(t, newClient(t, b.Mem), "b")
		_, err := mongolock.AcquireAll(t.Context(), newClient(t, b), []string{"a", "b"}, mongolock.MinHold(time.Hour), mongolock.MaxWait(time.Second))
		require.ErrorIs(t, err, mongolock.ErrHeld)
		synctest.Wait()
		mustBeFree(t, b, "a")
		release(t, held)
	})
}

// endsAfter is a context that ends when its Err was asked a few times.
type endsAfter struct {
	context.Context
	asked atomic.Int32
	after int32
}

func (c *endsAfter) Err() error {
	if c.asked.Add(1) > c.after {
		return context.DeadlineExceeded
	}
	return nil
}

func TestALeaseWhoseDetachFailedGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after := range int32(6) {
			c := newClient(t, memstore.New())
			l := acquire(t, c, "k")
			time.Sleep(time.Minute) // virtual: some renewals
			if _, err := l.Detach(&endsAfter{Context: t.Context(), after: after}); err == nil {
				continue
			}
			time.Sleep(10 * time.Minute)
			assert.NoError(t, l.Err(), "after %d looks at the context", after)
			release(t, l)
		}
	})
}

// Two thousand waiters of one process must not storm a store that refuses, and none of them waits
// for long once it answers.
func TestWaitersOfAStoreThatRefusesSendTwoClaimsASecond(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		keys := fewer.Of(2000)
		other, c := newClient(t, b.Mem), newClient(t, b)
		for i := range keys {
			acquire(t, other, fmt.Sprint("k", i), mongolock.NoRenewal())
		}
		var waits []<-chan result
		for i := range keys {
			waits = append(waits, inBackground(t.Context(), c, fmt.Sprint("k", i)))
		}
		time.Sleep(5 * time.Second)
		var claims atomic.Int64
		b.On(lab.Acquire, func(context.Context, *lab.Call) error {
			claims.Add(1)
			return fmt.Errorf("refused (%w)", store.ErrNotApplied)
		})
		time.Sleep(time.Minute) // virtual: the holders have run out
		before := claims.Load()
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, claims.Load()-before, int64(2*60+1), "claims in a minute")
		assert.GreaterOrEqual(t, claims.Load()-before, int64(60), "claims in a minute")
		b.All(nil)
		start := time.Now()
		for _, wait := range waits {
			r := <-wait
			require.NoError(t, r.err)
			release(t, r.lease)
		}
		tookBetween(t, start, 0, 10*time.Second)
	})
}
