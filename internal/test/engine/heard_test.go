package engine_test

import (
	"context"
	"sync"
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

func TestAHundredWaitersSendAtMostFourCommandsAMinuteWhileTheKeyIsHeld(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		acquire(t, newClient(t, b.Mem), "k")
		c := newClient(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		var waits []<-chan result
		for range 100 {
			waits = append(waits, inBackground(ctx, c, "k"))
		}
		time.Sleep(time.Minute)
		b.Reset()
		time.Sleep(10 * time.Minute)
		assert.LessOrEqual(t, b.Count(), 10*4, "commands in ten minutes: when the holder seen last should have expired")
		cancel()
		for _, w := range waits {
			err := (<-w).err
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, mongolock.ErrHeld)
		}
	})
}

func TestAWakeUpForACancelledHeadReachesTheNextWaiter(t *testing.T) {
	for offset := time.Duration(0); offset <= 40*time.Millisecond; offset += time.Millisecond {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			b.On(lab.Acquire, lab.Slow(10*time.Millisecond, 10*time.Millisecond))
			l := acquire(t, newClient(t, b.Mem), "k", mongolock.TTL(10*time.Minute))
			c := newClient(t, b)
			ctx, cancel := context.WithCancel(t.Context())
			first := inBackground(ctx, c, "k")
			synctest.Wait()
			second := inBackground(t.Context(), c, "k")
			time.Sleep(time.Second)
			start := time.Now()
			time.AfterFunc(10*time.Millisecond, func() { release(t, l) })
			time.AfterFunc(offset, cancel)
			if r := <-first; r.err == nil {
				release(t, r.lease)
			}
			r := <-second
			require.NoError(t, r.err)
			tookBetween(t, start, 0, 150*time.Millisecond)
			cancel()
		})
	}
}

func TestTheNextWaiterAsksForItselfWhenAHeadGivesUpDuringItsClaim(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		brief := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: 2 * time.Second}
		l := acquire(t, newClient(t, b.Mem), "k")
		c := newClient(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		first := inBackground(ctx, c, "k")
		synctest.Wait()
		second := inBackground(t.Context(), c, "k")
		synctest.Wait()
		b.On(lab.Acquire, lab.Slow(0, 100*time.Millisecond))
		// Another process gets the key between the release and the head's claim, and dies.
		_, _ = b.Mem.Release(t.Context(), store.ReleaseRequest{Ref: store.Ref{Key: "k", ID: l.ID(), Mode: store.Exclusive}})
		brief.Place = store.NewPlace(brief.Mode, brief.Limit, 1, "")
		_, err := b.Mem.Acquire(t.Context(), brief)
		require.ErrorIs(t, err, store.ErrHeld)
		brief.Unseen = time.Now()
		_, err = b.Mem.Acquire(t.Context(), brief)
		require.NoError(t, err)
		start := time.Now()
		_ = b.Mem.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindOffered})
		synctest.Wait()
		cancel()
		assert.ErrorIs(t, (<-first).err, context.Canceled)
		assert.NoError(t, (<-second).err)
		tookBetween(t, start, 2*time.Second, 2300*time.Millisecond)
	})
}

// The hints of a claim save commands: one that is expected to be refused only looks, and one for a
// key that is offered does not.
func TestTheHintsOfAClaim(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		holder, c := newClient(t, b.Mem), newClient(t, b)
		l := acquire(t, holder, "k")
		var mu sync.Mutex
		var hints []string
		b.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
			mu.Lock()
			defer mu.Unlock()
			hint := "none"
			switch {
			case call.Claim.Offered:
				hint = "offered"
			case call.Claim.InLine:
				hint = "in line"
			case call.Claim.Held:
				hint = "held"
			}
			hints = append(hints, hint)
			return call.Do()
		})
		sent := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, want, hints, "the claims %s", when)
			hints = nil
		}
		wait := inBackground(t.Context(), c, "k")
		sent("on arrival", "none")
		time.Sleep(31 * time.Second)
		sent("when the place is to be kept", "in line")
		release(t, l)
		sent("after a release", "offered")
		l = (<-wait).lease
		inBackground(t.Context(), holder, "k")
		synctest.Wait()
		release(t, l)
		sent("of the holder", []string(nil)...)
		inBackground(t.Context(), c, "k")
		sent("after a release that found others waiting", "held")
	})
}

// There are four processes with a hundred waiters each, and the holder renews.
func TestEachProcessAsksAtMostThreeTimesAMinuteForAHeldKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		acquire(t, newClient(t, mem), "k")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var processes []*lab.Store
		for range 4 {
			b := lab.New(mem)
			c := newClient(t, b)
			for range 100 {
				inBackground(ctx, c, "k")
			}
			processes = append(processes, b)
		}
		time.Sleep(time.Minute)
		for _, b := range processes {
			b.Reset()
		}
		time.Sleep(10 * time.Minute)
		for i, b := range processes {
			assert.LessOrEqual(t, b.Count(), 31, "calls of process %d in ten minutes", i)
			assert.Equal(t, b.Count()-b.Count(lab.Look, lab.Watch), b.Count(lab.Acquire), "claims among the calls of process %d", i)
			assert.LessOrEqual(t, b.Count(lab.Look), 3, "looks of process %d, one each time that the feed is opened again", i)
		}
	})
}
