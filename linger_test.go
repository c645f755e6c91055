package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

var lingering = mongolock.Linger(10 * time.Second)

// hearing has the client's feed open before anything is claimed, as it is after the first lease that lingers.
func hearing(t *testing.T, c *mongolock.Client) {
	t.Helper()
	release(t, acquire(t, c, "another key", lingering))
	synctest.Wait()
	require.True(t, inside.Look(c, "k").Listening)
}

// keep has the client keep the key idle, and returns the lease that its holder released.
func keep(t *testing.T, c *mongolock.Client, opts ...mongolock.AcquireOption) *mongolock.Lease {
	t.Helper()
	hearing(t, c)
	l := acquire(t, c, "k", append(opts, lingering)...)
	release(t, l)
	synctest.Wait()
	require.Equal(t, 1, c.Stats().Idle, "keys that are kept")
	require.Zero(t, c.Stats().Held, "leases")
	return l
}

func TestTheNextAcquireOfAKeyThatLingersCostsNothing(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		last := keep(t, c)
		b.reset()
		for i := range 100 {
			var l *mongolock.Lease
			if i%2 == 0 {
				l = acquire(t, c, "k", lingering)
			} else {
				var err error
				l, err = c.TryAcquire(t.Context(), "k", lingering)
				require.NoError(t, err)
			}
			assert.Greater(t, l.Token(), last.Token())
			assert.NoError(t, l.Err())
			assert.Equal(t, mongolock.ErrReleased, last.Err())
			mustBeHeld(t, b, "k")
			release(t, l)
			last = l
		}
		assert.Zero(t, b.total(), "commands")
		assert.Equal(t, 1, c.Stats().Idle)
	})
}

func TestWhenTheLocalTokensAreUsedUpOneCommandGivesMore(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		last := keep(t, c).Token()
		b.reset()
		for range 1000 {
			l := acquire(t, c, "k", lingering)
			assert.Greater(t, l.Token(), last)
			last = l.Token()
			release(t, l)
		}
		assert.Equal(t, 7, b.count("transfer"), "1,000 grants, 128 from each command")
		assert.Equal(t, 7, b.total(), "commands")

		other := newClient(t, s)
		l := acquire(t, other, "k")
		assert.Greater(t, l.Token(), last, "the token of another client")
	})
}

func TestAWaiterElsewhereIsServedAtOnceByAKeyThatLingers(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c, other := newClient(t, s), newClient(t, s)
		keep(t, c)
		start := time.Now()
		l := acquire(t, other, "k")
		tookBetween(t, start, 0, time.Millisecond)
		assert.Zero(t, c.Stats().Idle)
		mine := inBackground(t.Context(), c, "k", lingering)
		// virtual: the lease is in use, and its holder works
		time.Sleep(time.Second)
		release(t, l)
		r := <-mine
		require.NoError(t, r.err)
		assert.Greater(t, r.lease.Token(), l.Token())
	})
}

func TestAReleaseFreesALingeringKeyThatAnotherProcessAskedFor(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c, other := newClient(t, s), newClient(t, s)
		keep(t, c)
		l := acquire(t, c, "k", lingering)
		wait := inBackground(t.Context(), other, "k")
		synctest.Wait()
		assert.NoError(t, l.Err(), "a lease in use is not given up")
		start := time.Now()
		release(t, l)
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, start, 0, time.Millisecond)
		assert.Zero(t, c.Stats().Idle)
	})
}

func TestAKeyThatLingersIsFreedWhenItsTimeIsOver(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s, mongolock.TTL(time.Second))
		keep(t, c)
		// virtual: nearly the time for which the key is kept
		time.Sleep(10*time.Second - time.Millisecond)
		mustBeHeld(t, b, "k")
		assert.Greater(t, b.count("renew"), 10, "it is renewed meanwhile")
		// virtual: the rest of it
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		mustBeFree(t, b, "k")
		assert.Zero(t, c.Stats().Idle)
	})
}

func TestAnOldLeaseOfALingeringKeyAffectsNothing(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		old := keep(t, c)
		work := old.Context(t.Context())
		l := acquire(t, c, "k", lingering)
		b.reset()
		assert.NoError(t, old.Release(), "the key was released by it")
		assert.ErrorIs(t, old.Renew(t.Context()), mongolock.ErrReleased)
		_, err := old.Detach(t.Context())
		assert.ErrorIs(t, err, mongolock.ErrReleased)
		assert.Zero(t, old.Remaining())
		assert.True(t, isOver(old.Done()))
		assert.ErrorIs(t, work.Err(), context.Canceled)
		assert.Zero(t, b.total(), "commands")
		assert.NoError(t, l.Err())
		mustBeHeld(t, b, "k")
		assert.NotEqual(t, old.Token(), l.Token())
		assert.Equal(t, old.ID(), l.ID(), "the holder in the store is the same")
	})
}

func TestALocalGrantIsTrustedNoLongerThanTheLastRenewalAllows(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s, mongolock.TTL(3*time.Second), mongolock.WithMargin(100*time.Millisecond))
		keep(t, c)
		b.hook(func(h *hooks) {
			h.renew = func(ctx context.Context, batch []store.Renewal, _ func() []store.Renewed) []store.Renewed {
				<-ctx.Done()
				return []store.Renewed{{Err: errNet}}
			}
		})
		// virtual: shortly before the renewal is due
		time.Sleep(900 * time.Millisecond)
		l := acquire(t, c, "k", lingering)
		assert.InDelta(t, 2*time.Second, l.Remaining(), float64(10*time.Millisecond))
		// virtual: longer than the lease may be trusted
		time.Sleep(2100 * time.Millisecond)
		assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
		assert.True(t, isOver(l.Done()))
	})
}

// The key that a dead process kept is no longer renewed, and that process cannot be asked.
func TestAProcessThatDiesWhileItKeepsAKeyCostsItsTTL(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		dead := newHookedStore(b.mem)
		c := newClient(t, dead, mongolock.TTL(3*time.Second))
		keep(t, c)
		dead.hook(func(h *hooks) {
			h.renew = func(context.Context, []store.Renewal, func() []store.Renewed) []store.Renewed {
				return []store.Renewed{{Err: errNet}}
			}
			h.release = func(context.Context, store.Ref, func() store.Ended) store.Ended { return store.Ended{Err: errNet} }
		})
		start := time.Now()
		release(t, acquire(t, newClient(t, s), "k"))
		tookBetween(t, start, 2900*time.Millisecond, 3100*time.Millisecond)
		dead.hook(func(h *hooks) { *h = hooks{} })
	})
}

// A lease whose renewal failed is not passed on, because the outcome is unknown.
func TestAKeyWhoseRenewalFailedIsNotGrantedLocally(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s, mongolock.TTL(3*time.Second))
		keep(t, c)
		b.hook(func(h *hooks) {
			h.renew = func(context.Context, []store.Renewal, func() []store.Renewed) []store.Renewed {
				return []store.Renewed{{Err: errNet}}
			}
		})
		// virtual: until after the renewal
		time.Sleep(1010 * time.Millisecond)
		b.reset()
		l := acquire(t, c, "k", lingering)
		assert.Equal(t, 1, b.count("transfer"), "it is handed over in the store")
		assert.Greater(t, l.Remaining(), 2*time.Second)
	})
}

func TestOtherTermsCostATrip(t *testing.T) {
	for name, opt := range map[string]mongolock.AcquireOption{
		"another TTL": mongolock.TTL(time.Minute), "a note": mongolock.Note("why"), "no renewal": mongolock.NoRenewal(), "a minimum": mongolock.MinHold(time.Second),
	} {
		onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
			c := newClient(t, s)
			last := keep(t, c)
			b.reset()
			l := acquire(t, c, "k", opt)
			assert.Equal(t, []int{1, 1}, []int{b.count("transfer"), b.total()}, "%s: hand-overs, commands", name)
			assert.Greater(t, l.Token(), last.Token(), name)

			last = keepAgain(t, c, l)
			b.reset()
			l, err := c.TryAcquire(t.Context(), "k", opt)
			require.NoError(t, err, name)
			assert.Equal(t, []int{1, 1, 2}, []int{b.count("release"), b.count("acquire"), b.total()}, "%s: releases, claims, commands of a Try", name)
			assert.Greater(t, l.Token(), last.Token(), name)
		})
	}
}

// keepAgain has the client keep the key of l.
func keepAgain(t *testing.T, c *mongolock.Client, l *mongolock.Lease) *mongolock.Lease {
	t.Helper()
	release(t, l)
	// virtual: MinHold is over
	time.Sleep(2 * time.Second)
	next := acquire(t, c, "k", lingering)
	release(t, next)
	require.Equal(t, 1, c.Stats().Idle)
	return next
}

func TestAReaderIsNotGivenAKeyThatLingersLocally(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		keep(t, c)
		l := acquire(t, c, "k", mongolock.Shared())
		all, err := c.Inspect(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, store.Shared, all.Mode)
		release(t, l)
	})
}

func TestMaxHoldAndMaxStallCountFromTheLocalGrant(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s, mongolock.TTL(time.Second))
		keep(t, c, mongolock.MaxHold(2*time.Second))
		// virtual: longer than MaxHold allows, which the idle key has nothing to do with
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, c.Stats().Idle)
		l := acquire(t, c, "k", lingering, mongolock.MaxHold(3*time.Second))
		// virtual: less than MaxHold
		time.Sleep(2900 * time.Millisecond)
		assert.NoError(t, l.Err())
		// virtual: more
		time.Sleep(200 * time.Millisecond)
		assert.ErrorIs(t, l.Err(), mongolock.ErrMaxHold)

		// virtual: the lost lease is given back
		time.Sleep(time.Second)
		release(t, acquire(t, c, "k", lingering))
		l = acquire(t, c, "k", lingering, mongolock.MaxStall(2*time.Second))
		// virtual: no progress
		time.Sleep(2100 * time.Millisecond)
		assert.ErrorIs(t, l.Err(), mongolock.ErrStalled)
	})
}

func TestClosingFreesLingeringKeysWithoutWaiting(t *testing.T) {
	for name, end := range map[string]func(*mongolock.Client) error{
		"Close":    (*mongolock.Client).Close,
		"Shutdown": func(c *mongolock.Client) error { return c.Shutdown(context.Background()) },
	} {
		onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
			c := newClient(t, s)
			keep(t, c)
			start := time.Now()
			require.NoError(t, end(c), name)
			tookBetween(t, start, 0, time.Millisecond)
			mustBeFree(t, b, "k")
		})
	}
}

func TestAReleaseDuringShutdownFreesTheKey(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		hearing(t, c)
		l := acquire(t, c, "k", lingering)
		over := make(chan error, 1)
		go func() { over <- c.Shutdown(context.WithoutCancel(t.Context())) }()
		synctest.Wait()
		start := time.Now()
		release(t, l)
		require.NoError(t, <-over)
		tookBetween(t, start, 0, time.Millisecond)
		mustBeFree(t, b, "k")
	})
}

func TestABrokenKeyThatLingersIsGone(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s, mongolock.TTL(time.Second))
		keep(t, c)
		_, err := newClient(t, s).Break(t.Context(), "k", "why not", 0)
		require.NoError(t, err)
		// virtual: until after the next renewal
		time.Sleep(time.Second)
		assert.Zero(t, c.Stats().Idle)
		l := acquire(t, c, "k", lingering)
		assert.NoError(t, l.Err())
		mustBeHeld(t, b, "k")
	})
}

func TestNoKeyLingersInAClientThatDoesNotHearOfWaiters(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		deaf := newClient(t, s, mongolock.WithoutFeed())
		release(t, acquire(t, deaf, "k", lingering))
		mustBeFree(t, b, "k")

		c := newClient(t, s)
		release(t, acquire(t, c, "k", lingering))
		mustBeFree(t, b, "k") // the feed was not open when the key was claimed
		synctest.Wait()
		l := acquire(t, c, "k", lingering)
		inside.EndLinger(c) // no: the feed is needed
		release(t, l)
		mustBeHeld(t, b, "k")
	})
}

func TestATryIsToldThatTheHolderLingersAndMayAsk(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c, other := newClient(t, s), newClient(t, s)
		keep(t, c)
		_, err := other.TryAcquire(t.Context(), "k")
		var held *mongolock.HeldError
		require.ErrorAs(t, err, &held)
		assert.NotEmpty(t, held.Holders[0].Lingers)
		assert.ErrorContains(t, err, "may be idle")
		synctest.Wait()
		assert.Equal(t, 1, c.Stats().Idle, "a Try does not ask by itself")

		_, err = other.TryAcquire(t.Context(), "k", mongolock.FreeIdle())
		require.ErrorIs(t, err, mongolock.ErrHeld)
		synctest.Wait()
		assert.Zero(t, c.Stats().Idle)
		l, err := other.TryAcquire(t.Context(), "k", mongolock.FreeIdle())
		require.NoError(t, err)
		release(t, l)
	})
}

func TestLingerIsRefusedWithOptionsThatExcludeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(nil)
		c := newClient(t, b)
		for word, opt := range map[string]mongolock.AcquireOption{
			"Shared": mongolock.Shared(), "OneOf": mongolock.OneOf(2), "MinHold": mongolock.MinHold(time.Second), "NoRenewal": mongolock.NoRenewal(),
		} {
			_, err := c.Acquire(t.Context(), "k", lingering, opt)
			assert.ErrorContains(t, err, "Linger(10s) with ")
			assert.ErrorContains(t, err, word)
		}
		for _, d := range []time.Duration{-1, 0, 366 * 24 * time.Hour} {
			_, err := c.Acquire(t.Context(), "k", mongolock.Linger(d))
			assert.ErrorContains(t, err, "mongolock: Linger(")
		}
		assert.Zero(t, b.total())
	})
}

func TestSeveralKeysLingerTogether(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *hookedStore, s store.Store) {
		c := newClient(t, s)
		hearing(t, c)
		all, err := mongolock.AcquireAll(t.Context(), c, []string{"k", "l", "m"}, lingering)
		require.NoError(t, err)
		require.NoError(t, all.Release())
		assert.Equal(t, 3, c.Stats().Idle)
		b.reset()
		all, err = mongolock.AcquireAll(t.Context(), c, []string{"k", "l", "m"}, lingering)
		require.NoError(t, err)
		require.NoError(t, all.Release())
		assert.Zero(t, b.total(), "commands")

		other := newClient(t, s)
		l := acquire(t, other, "m")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = mongolock.AcquireAll(ctx, c, []string{"k", "l", "m"}, lingering)
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.Zero(t, c.Stats().Idle, "what was given up is not kept")
		release(t, l)
	})
}
