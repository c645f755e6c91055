package engine_test

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
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestBreakFreesAKeyWhoseHolderCannotBeReached(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k", mongolock.TTL(time.Hour))
		b.On(lab.Renew, lab.Fail(errNet))
		operator := newClient(t, b.Mem)
		wait := inBackground(t.Context(), operator, "k")
		synctest.Wait()
		start := time.Now()
		_, err := operator.Break(t.Context(), "k", "why", 5*time.Second)
		require.NoError(t, err)
		tookBetween(t, start, 5*time.Second, 5*time.Second)
		assert.NoError(t, (<-wait).err)
		tookBetween(t, start, 5*time.Second, 5100*time.Millisecond)
		b.On(lab.Renew, nil)
		assert.ErrorIs(t, l.Renew(t.Context()), mongolock.ErrLost)
	})
}

// A holder that MinHold keeps was released: there is nobody to tell. It may be released during the wait,
// too, as by a holder that was told.
func TestBreakDoesNotWaitForAKeptKey(t *testing.T) {
	for when, released := range map[string]func(l *mongolock.Lease){
		"before":         func(l *mongolock.Lease) { _ = l.Release() },
		"meanwhile":      func(l *mongolock.Lease) { time.AfterFunc(time.Second, func() { _ = l.Release() }) },
		"as it was told": func(l *mongolock.Lease) {},
	} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			released(acquire(t, newClient(t, b), "k", mongolock.MinHold(time.Hour)))
			mustBeHeld(t, b, "k")
			start := time.Now()
			marked, err := newClient(t, b).Break(t.Context(), "k", "why", 30*time.Minute)
			require.NoError(t, err)
			assert.Len(t, marked, 1)
			assert.Less(t, time.Since(start), 30*time.Second, "released %s", when)
			mustBeFree(t, b, "k")
		})
	}
}

// Behind a router the time of a read is that of the shard which was last heard of.
func TestBreakIsNotMisledByAnotherShardsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		b := lab.New(mem)
		l := acquire(t, newClient(t, mem), "k", mongolock.TTL(30*time.Second))
		var looks atomic.Int32 // the last one may come beside the end
		b.On(lab.Look, func(_ context.Context, call *lab.Call) error {
			err := call.Do()
			if looks.Add(1) > 1 {
				call.Statuses[0].Now = call.Statuses[0].Now.Add(time.Hour)
			}
			return err
		})
		_, err := newClient(t, b).Break(t.Context(), "k", "why", 15*time.Second)
		require.NoError(t, err)
		assert.Greater(t, looks.Load(), int32(1))
		require.ErrorIs(t, l.Err(), mongolock.ErrBroken, "it was told by a renewal, before the key was free")
	})
}

func TestBreakWithNegativeGraceRemovesNothing(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		dead := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: time.Minute}
		_, err := b.Mem.Acquire(t.Context(), dead)
		require.NoError(t, err)
		c := newClient(t, b)
		broken, err := c.Break(t.Context(), "k", "why", -1)
		require.NoError(t, err)
		require.Len(t, broken, 1)
		time.Sleep(time.Minute - 1)
		mustBeHeld(t, b, "k")
		time.Sleep(time.Nanosecond)
		broken, err = c.Break(t.Context(), "k", "why", 0)
		assert.NoError(t, err)
		assert.Empty(t, broken, "holders of a free key")
		acquire(t, c, "k")
	})
}

// readersOf has a client hold a key with that many leases.
func readersOf(t *testing.T, c *mongolock.Client, key string, n int) {
	for range n {
		acquire(t, c, key, mongolock.Shared())
	}
}

func TestBreakEndsSoonAfterItsContextHoweverManyHoldersThereAre(t *testing.T) {
	for _, holders := range []int{1, 5, 200} {
		for _, hangs := range []int{1, 2} { // the marks, or the removals
			t.Run(fmt.Sprintf("%d holders, round %d", holders, hangs), func(t *testing.T) {
				lab.Test(t, func(t *testing.T, s *lab.Store) {
					c := newClient(t, s)
					readersOf(t, c, "k", holders)
					var breaks atomic.Int32
					s.On(lab.Break, func(ctx context.Context, call *lab.Call) error {
						if int(breaks.Add(1)) > (hangs-1)*holders {
							return lab.Hang(ctx, call)
						}
						return call.Do()
					})
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					start := time.Now()
					marked, err := c.Break(ctx, "k", "why", 0)
					tookBetween(t, start, 100*time.Millisecond, 1100*time.Millisecond)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Len(t, marked, (hangs-1)*holders)
				})
			})
		}
	}
}

func TestTheHoldersOfAKeyAreBrokenSideBySide(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		c := newClient(t, s)
		readersOf(t, c, "k", 50)
		s.On(lab.Break, lab.Slow(linkTrip, 0))
		start := time.Now()
		marked, err := c.Break(t.Context(), "k", "why", 0)
		require.NoError(t, err)
		tookBetween(t, start, 2*linkTrip, 3*linkTrip)
		assert.Len(t, marked, 50)
		for _, h := range marked {
			assert.Equal(t, "why", h.Broken)
		}
		mustBeFree(t, s.Mem, "k")
	})
}
