package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

// undosMost is how many claims of unknown outcome a client has at most.
const undosMost = 4096

// An outage leaves claims of unknown outcome, leases that could not be released and places in lines. All of it is settled
// within a minute after its end, and no renewal waits for that.
func TestWhatAnOutageLeavesIsSettledWithinAMinute(t *testing.T) {
	for name, how := range map[string]lab.Hook{
		"refused": lab.Fail(errNet),
		"hangs":   lab.Hang,
		"applied": func(ctx context.Context, call *lab.Call) error {
			_ = call.Do()
			return lab.Hang(ctx, call)
		},
	} {
		t.Run(name, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				const releases, places, held = 1000, 64, 100
				c, other := newClient(t, b), newClient(t, b.Mem)
				ttl := mongolock.TTL(10 * time.Minute)
				var ours, kept []*mongolock.Lease
				for i := range releases {
					ours = append(ours, acquire(t, c, fmt.Sprint("release", i), ttl))
				}
				for i := range held {
					kept = append(kept, acquire(t, c, fmt.Sprint("held", i), mongolock.TTL(30*time.Second)))
				}
				for i := range places {
					acquire(t, other, fmt.Sprint("place", i), mongolock.TTL(time.Hour))
				}
				var down atomic.Bool
				b.All(func(ctx context.Context, call *lab.Call) error {
					time.Sleep(time.Millisecond)
					if down.Load() {
						return how(ctx, call)
					}
					return call.Do()
				})
				var all sync.WaitGroup
				waiting, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				for i := range places {
					all.Go(func() {
						_, err := c.Acquire(waiting, fmt.Sprint("place", i))
						assert.Error(t, err)
					})
				}
				time.Sleep(time.Second)
				down.Store(true)
				giveUp()
				for i := range undosMost {
					all.Go(func() {
						_, err := c.TryAcquire(t.Context(), fmt.Sprint("claim", i), ttl)
						assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
					})
				}
				for _, l := range ours {
					all.Go(func() { assert.Error(t, l.Release()) })
				}
				time.Sleep(12 * time.Second)
				synctest.Wait()
				down.Store(false)
				for _, l := range kept {
					require.NoError(t, l.Err())
				}
				require.GreaterOrEqual(t, c.Stats().CleanUps, undosMost/2, "the outage left nothing")
				for range 60 {
					time.Sleep(time.Second)
					if s := c.Stats(); s.Held > 0 {
						assert.LessOrEqual(t, s.OldestRenewal, 23*time.Second, "a renewal is late")
					}
				}
				all.Wait()
				s := c.Stats()
				assert.Zero(t, s.CleanUps, "claims")
				assert.Zero(t, s.Unreleased, "leases")
				for i := range places {
					seen, err := b.Mem.Look(t.Context(), []string{fmt.Sprint("place", i)})
					require.NoError(t, err)
					assert.Empty(t, seen[0].Line, "places")
				}
				for _, l := range kept {
					assert.NoError(t, l.Err())
				}
			})
		})
	}
}

// A client that has too many claims of unknown outcome sends no others. That is its own matter and no outage: who waits does
// not poll, and goes on as soon as there is room.
func TestAClientThatIsFullWaitsForItsOwn(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		var down atomic.Bool
		down.Store(true)
		b.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
			if down.Load() {
				return errNet
			}
			return call.Do()
		})
		b.On(lab.Undo, func(ctx context.Context, call *lab.Call) error {
			if down.Load() {
				return lab.Hang(ctx, call)
			}
			return call.Do()
		})
		for i := range undosMost {
			_, err := c.TryAcquire(t.Context(), fmt.Sprint("claim", i), mongolock.TTL(time.Hour))
			require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		}
		sent := b.Count(lab.Acquire)
		_, err := c.TryAcquire(t.Context(), "k")
		assert.ErrorIs(t, err, mongolock.ErrNotApplied)
		assert.ErrorContains(t, err, "too many earlier claims")
		_, err = c.Acquire(t.Context(), "k", mongolock.MaxWait(time.Second))
		assert.ErrorContains(t, err, "too many earlier claims")
		assert.NotErrorIs(t, err, mongolock.ErrHeld)
		assert.Equal(t, mongolock.OutcomeTimeout, mongolock.OutcomeOf(err))

		waiter := inBackground(t.Context(), c, "k")
		time.Sleep(time.Second)
		assert.Equal(t, sent, b.Count(lab.Acquire), "claims while there is no room")
		down.Store(false)
		start := time.Now()
		got := <-waiter
		require.NoError(t, got.err)
		assert.Less(t, time.Since(start), 11*time.Second, "once one is undone")
		release(t, got.lease)
	})
}
