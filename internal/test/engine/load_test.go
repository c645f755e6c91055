package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
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

// These tests count, in virtual time, the calls that a client sends to a store that is in
// trouble.

var errRefused = fmt.Errorf("the server is overloaded (%w)", store.ErrNotApplied)

// A waiter is refused for a held key at first, and then meets faults for an hour.
func TestAWaiterSendsAtMostTwoClaimsASecondUnderAnyError(t *testing.T) {
	fast := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	for name, fault := range map[string]func(context.Context) error{
		"unknown, at once":     fast(errNet),
		"not applied, at once": fast(errRefused),
		"unknown, after a second": func(context.Context) error {
			time.Sleep(time.Second)
			return errNet
		},
		"never answered": func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, polls := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) { claimsUnderFaults(t, fault, polls) })
			}
		})
	}
}

func claimsUnderFaults(t *testing.T, fault func(context.Context) error, polls bool) {
	b := lab.New(memstore.New())
	var opts []mongolock.ClientOption
	if polls {
		opts = append(opts, mongolock.WithoutFeed())
	}
	holder, c := newClient(t, b.Mem), newClient(t, b, opts...)
	l := acquire(t, holder, "k")
	ctx, stop := context.WithCancel(t.Context())
	wait := inBackground(ctx, c, "k")
	time.Sleep(5 * time.Second)
	b.On(lab.Acquire, func(ctx context.Context, _ *lab.Call) error {
		return fault(ctx)
	})
	release(t, l) // a read shows that the key is free, and a wake-up says so
	b.Reset()
	before := runtime.NumGoroutine()
	const seconds = 3600
	for range 60 {
		time.Sleep(time.Minute)
		_, _ = c.Inspect(ctx, "k") // a look beside the waiter
	}
	assert.LessOrEqual(t, b.Count(lab.Acquire), 2*seconds)
	assert.LessOrEqual(t, b.Count(lab.Undo), 2*seconds)
	synctest.Wait() // what goes on at this very moment ends by itself
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+5, "goroutines")
	b.All(nil)
	r := <-wait
	require.NoError(t, r.err, "the waiter is served once the store answers")
	release(t, r.lease)
	stop()
}

// A claim of unknown outcome is cleaned up before the next one is sent, and one goroutine
// cleans up for all keys.
func TestClaimsOfUnknownOutcomeDoNotPileUp(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b, mongolock.TTL(time.Hour))
		b.On(lab.Acquire, lab.Fail(errNet))
		b.On(lab.Undo, lab.Fail(errNet))
		before := runtime.NumGoroutine()
		for range 30 * 60 {
			_, err := c.TryAcquire(t.Context(), "k")
			require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1, b.Count(lab.Acquire), "claims of a key that an earlier claim may hold")
		assert.LessOrEqual(t, b.Count(lab.Undo), 2*30*60)
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+2, "goroutines")

		b.All(nil)
		l, err := c.TryAcquire(t.Context(), "k")
		require.NoError(t, err, "the store answers again, so the next try settles the earlier claim first")
		release(t, l)
	})
}

// The memory that one attempt takes tells whether it looks at one claim or at all.
func TestAnAttemptCostsTheSameHoweverManyClaimsAreUnsettled(t *testing.T) {
	perAttempt := func(claims int) (bytes uint64) {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			c := newClient(t, b, mongolock.TTL(time.Hour))
			b.On(lab.Acquire, lab.Fail(errNet))
			b.On(lab.Undo, lab.Fail(errNet))
			for i := range claims {
				_, err := c.TryAcquire(t.Context(), fmt.Sprint("k", i))
				require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
			}
			time.Sleep(time.Minute)
			var before, after runtime.MemStats
			attempts := b.Count(lab.Undo)
			runtime.ReadMemStats(&before)
			time.Sleep(10 * time.Second)
			runtime.ReadMemStats(&after)
			bytes = (after.TotalAlloc - before.TotalAlloc) / uint64(b.Count(lab.Undo)-attempts)
			b.All(nil)
		})
		return bytes
	}
	few, many := perAttempt(50), perAttempt(undosMost/4)
	assert.Less(t, many, 2*few, "bytes for each attempt")
}

// A client that shuts down leaves all its lines at once, and waiters may give up together.
func TestAtMostSixteenPlacesAreTakenOutAtTheSameTime(t *testing.T) {
	for _, closes := range []bool{false, true} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			const keys = 50
			other, c := newClient(t, b.Mem), newClient(t, b)
			var mu sync.Mutex // protects what follows
			var now, most, left int
			b.On(lab.Leave, func(_ context.Context, call *lab.Call) error {
				mu.Lock()
				now++
				most = max(most, now)
				left++
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
				return call.Do()
			})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var waits []<-chan result
			for i := range keys {
				acquire(t, other, fmt.Sprint("k", i))
				waits = append(waits, inBackground(ctx, c, fmt.Sprint("k", i)))
			}
			time.Sleep(time.Second)
			if closes {
				require.NoError(t, c.Close())
			} else {
				leave()
			}
			for _, w := range waits {
				require.Error(t, (<-w).err)
			}
			time.Sleep(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, 16, most, "at a time")
			assert.Equal(t, keys, left)
		})
	}
}

func TestAWaiterAsksOnceAMinuteWhateverWakeUpsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		holder, c := newClient(t, mem), newClient(t, mem)
		l := acquire(t, holder, "k", mongolock.TTL(24*time.Hour))
		wait := inBackground(t.Context(), c, "k")
		time.Sleep(10 * time.Minute)
		_, err := mem.Release(t.Context(), store.ReleaseRequest{Ref: store.Ref{Key: "k", ID: l.ID(), Mode: store.Exclusive}}) // freed by hand, without a wake-up
		require.NoError(t, err)
		freed := time.Now()
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, freed, 0, time.Minute)
		release(t, r.lease)
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
