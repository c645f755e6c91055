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
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/onecore"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestLeaseIsLostBeforeItsTTLWhenRenewalsFail(t *testing.T) {
	for name, renew := range map[string]lab.Hook{
		"hang": lab.Hang, "late": lab.Slow(time.Hour, 0), "refuse": lab.Fail(errNet), // the late one ignores its context
	} {
		t.Run(name, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				start := time.Now()
				l := acquire(t, newClient(t, b), "k")
				ctx := l.Context(t.Context())
				b.On(lab.Renew, renew)
				b.On(lab.Release, lab.Hang)
				rival := inBackground(t.Context(), newClient(t, b.Mem), "k")
				<-l.Done()
				tookBetween(t, start, 29*time.Second, 29*time.Second)
				<-ctx.Done()
				assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
				assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrLost)
				r := <-rival
				require.NoError(t, r.err)
				assert.GreaterOrEqual(t, r.when.Sub(start), 30*time.Second, "the time until the rival was granted the key")
				assert.LessOrEqual(t, r.when.Sub(start), 30*time.Second+50*time.Millisecond, "the time until the rival was granted the key")
				time.Sleep(2 * time.Hour)
				assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
				assert.NoError(t, r.lease.Err(), "the late renewal must not affect the next holder")
			})
		})
	}
}

func TestARenewalThatArrivesAfterTheReleaseHasNoEffect(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, time.Second, 5 * time.Second, 15 * time.Second} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			b.On(lab.Renew, lab.Slow(late, time.Second))
			l := acquire(t, newClient(t, b), "k")
			time.Sleep(10*time.Second + late/2)
			release(t, l)
			next := acquire(t, newClient(t, b.Mem), "k", mongolock.NoRenewal())
			granted := time.Now()
			time.Sleep(2 * time.Minute)
			assert.ErrorIs(t, l.Err(), mongolock.ErrReleased)
			assert.ErrorIs(t, next.Err(), mongolock.ErrLost, "the next holder's end")
			_, err := newClient(t, b.Mem).TryAcquire(t.Context(), "k")
			assert.NoError(t, err, "%v after", time.Since(granted))
		})
	}
}

func TestAThousandLeasesAreRenewedByOneCommandPerRoundAndATrialBefore(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		var leases []*mongolock.Lease
		for i := range 1000 {
			leases = append(leases, acquire(t, c, fmt.Sprint(i)))
			time.Sleep(2 * time.Millisecond) // all within a sixth of the TTL
		}
		b.Reset()
		time.Sleep(100 * time.Second)
		assert.Equal(t, 11, b.Count(lab.Renew), "renewals in ten rounds")
		assert.Equal(t, 11, b.Count(), "commands in ten rounds")
		for _, l := range leases {
			require.NoError(t, l.Err())
		}
	})
}

func TestABatchHasAtMostAThousandEntriesAndNamesEachLeaseOnce(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		for i := range 2500 {
			acquire(t, c, fmt.Sprint(i))
		}
		var mu sync.Mutex
		seen := make(map[string]int)
		b.On(lab.Renew, func(_ context.Context, call *lab.Call) error {
			mu.Lock()
			defer mu.Unlock()
			assert.LessOrEqual(t, len(call.Batch), 1000, "entries of a call.Batch")
			for _, r := range call.Batch {
				seen[r.ID]++
			}
			return call.Do()
		})
		time.Sleep(11 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		assert.Len(t, seen, 2500)
		assert.Equal(t, 4, b.Count(lab.Renew), "commands: a small one tries how fast the store is")
		for id, n := range seen {
			assert.Equal(t, 1, n, "renewals of %s", id)
		}
	})
}

// A slowServer renews one lease after the other, also those of a call that was given up.
type slowServer struct {
	each time.Duration

	mu   sync.Mutex // protects what follows
	free time.Time  // when it has done all that it was sent
	sent int        // leases that it was asked to renew
}

func (s *slowServer) renew(ctx context.Context, call *lab.Call) error {
	s.mu.Lock()
	if now := time.Now(); s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(len(call.Batch)) * s.each)
	s.sent += len(call.Batch)
	answer := time.After(time.Until(s.free))
	s.mu.Unlock()
	_ = call.Do()
	select {
	case <-answer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestASlowServerLosesNoLeaseThatItHasTheTimeToRenew(t *testing.T) {
	const ttl, clients, each = 10 * time.Second, 4, 1000
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(onecore.Begin())
		mem, server := memstore.New(), &slowServer{each: 600 * time.Microsecond} // 2.4 s for all
		var leases []*mongolock.Lease
		for n := range clients {
			b := lab.New(mem)
			b.On(lab.Renew, server.renew)
			c := newClient(t, b, mongolock.TTL(ttl))
			for i := range each {
				leases = append(leases, acquire(t, c, fmt.Sprint(n, "/", i)))
			}
		}
		rounds := fewer.Of(15)
		time.Sleep(time.Duration(rounds) * ttl / 3) // virtual
		lost := 0
		for _, l := range leases {
			if l.Err() != nil {
				lost++
			}
		}
		assert.Zero(t, lost, "lost leases")
		server.mu.Lock()
		defer server.mu.Unlock()
		assert.LessOrEqual(t, server.sent, clients*each*rounds*11/10, "renewals that the server was sent")
	})
}

func TestHalfATTLOfSilenceLosesNoneOfManyLeases(t *testing.T) {
	const ttl, many = 10 * time.Second, 2000
	for _, begin := range []time.Duration{0, ttl / 4, ttl/3 - time.Millisecond, ttl / 2, ttl} {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(onecore.Begin())
			server, start := &slowServer{each: 50 * time.Microsecond}, time.Now()
			b := lab.New(memstore.New())
			b.On(lab.Renew, func(ctx context.Context, call *lab.Call) error {
				if at := time.Since(start); at >= begin && at < begin+ttl/2 {
					return lab.Hang(ctx, nil)
				}
				time.Sleep(2 * time.Millisecond) // virtual: the trip
				return server.renew(ctx, call)
			})
			c := newClient(t, b, mongolock.TTL(ttl))
			var leases []*mongolock.Lease
			for i := range many {
				leases = append(leases, acquire(t, c, fmt.Sprint(i)))
			}
			time.Sleep(2*ttl + ttl/2) // virtual: the last silence is over by then
			lost := 0
			for _, l := range leases {
				if l.Err() != nil {
					lost++
				}
			}
			assert.Zero(t, lost, "lost leases with silence from %v to %v", begin, begin+ttl/2)
		})
	}
}

func TestALeaseSurvivesRenewalsThatTakeAThirdOfTheTTL(t *testing.T) {
	for _, ttl := range []time.Duration{200 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			b.On(lab.Renew, lab.Slow((ttl/3-time.Millisecond)/2, (ttl/3-time.Millisecond)/2))
			l := acquire(t, newClient(t, b), "k", mongolock.TTL(ttl))
			time.Sleep(time.Duration(fewer.Of(2500)) * ttl)
			assert.NoError(t, l.Err(), "TTL %v", ttl)
		})
	}
}

func TestALeaseSurvivesASlowGrantFollowedBySlowRenewals(t *testing.T) {
	for _, slow := range []time.Duration{time.Second, 4 * time.Second, 5 * time.Second} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			b.On(lab.Renew, lab.Slow((3*time.Second)/2, (3*time.Second)/2))
			b.On(lab.Acquire, lab.Slow(0, slow))
			l := acquire(t, newClient(t, b), "k", mongolock.TTL(10*time.Second))
			time.Sleep(time.Hour)
			assert.NoError(t, l.Err(), "grant after %v", slow)
		})
	}
}

func TestALeaseWithLittleTimeLeftIsRenewedAtOnce(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k")
		b.On(lab.Renew, func(_ context.Context, call *lab.Call) error {
			_ = call.Do()
			call.Renewed[0].Left = 5 * time.Second // a store with a stale sample of the clock promises no more
			return nil
		})
		time.Sleep(time.Hour)
		assert.NoError(t, l.Err())
	})
}

func TestARenewalGoesOnWhenItsCallerGivesUp(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k", mongolock.NoRenewal())
		b.On(lab.Renew, lab.Slow((2*time.Second)/2, (2*time.Second)/2))
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, l.Renew(ctx), context.DeadlineExceeded)
		time.Sleep(10 * time.Second)
		assert.NoError(t, l.Err(), "the renewal was not cut short")
		time.Sleep(20 * time.Second)
		assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
		assert.ErrorIs(t, l.Renew(t.Context()), mongolock.ErrLost)
	})
}

// Each of 200 leases is renewed or detached by its holder shortly before the client renews it, so
// nothing of the first bulk is left to the client. The bulks behind that one hold other leases.
// Renewals go side by side. The second is answered when a third, for a later caller, is slow too.
func TestRenewIsNotAnsweredByARenewalThatBeganBeforeIt(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k", mongolock.TTL(6*time.Second))
		start := time.Now()
		var n atomic.Int64
		b.On(lab.Renew, func(ctx context.Context, c *lab.Call) error {
			if n.Add(1) != 2 {
				return lab.Hang(ctx, c)
			}
			time.Sleep(3500*time.Millisecond - time.Since(start))
			return c.Do()
		})
		go func() { _ = l.Renew(t.Context()) }()
		time.Sleep(time.Second)
		require.Error(t, l.Renew(t.Context()), "only one was answered, which was sent at 0.6 s")
		assert.Greater(t, time.Since(start), 3500*time.Millisecond)
		require.NoError(t, l.Err())
	})
}

func TestRenewReturnsWhenItsLeaseEnds(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l, start := acquire(t, newClient(t, b), "k", mongolock.TTL(time.Second), mongolock.NoRenewal()), time.Now()
		b.On(lab.Renew, lab.Hang)
		require.ErrorIs(t, l.Renew(t.Context()), mongolock.ErrLost)
		assert.Equal(t, 900*time.Millisecond, time.Since(start))
	})
}

func TestManyLeasesMayFallDueWhileTheirHoldersRenewThem(t *testing.T) {
	for how, call := range map[string]func(t *testing.T, l *mongolock.Lease) (then error){
		"Renew": func(t *testing.T, l *mongolock.Lease) error {
			assert.NoError(t, l.Renew(t.Context()))
			return nil
		},
		"Detach": func(t *testing.T, l *mongolock.Lease) error {
			_, err := l.Detach(t.Context())
			assert.NoError(t, err)
			return mongolock.ErrDetached
		},
	} {
		t.Run(how, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				c, start := newClient(t, b), time.Now()
				leases, want := make([]*mongolock.Lease, 300), make([]error, 300)
				for i := range leases {
					leases[i] = acquire(t, c, fmt.Sprint(i))
					time.Sleep(time.Millisecond)
				}
				b.On(lab.Renew, func(ctx context.Context, call *lab.Call) error {
					assert.NotEmpty(t, call.Batch)
					return lab.Slow(time.Second/2, time.Second/2)(ctx, call)
				})
				time.Sleep(10*time.Second - time.Since(start) - time.Millisecond) // the first is due at 10 s
				var calls sync.WaitGroup
				for i, l := range leases[:200] {
					calls.Go(func() { want[i] = call(t, l) })
				}
				calls.Wait()
				time.Sleep(2 * time.Minute)
				for i, l := range leases {
					assert.ErrorIs(t, l.Err(), want[i], l.Key())
				}
			})
		})
	}
}
