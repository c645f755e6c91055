package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

// claimsTake lets every claim of a store take d, applied in the middle of it.
func claimsTake(s *lab.Store, d time.Duration) {
	s.On(lab.Acquire, lab.Slow(d/2, d/2))
}

func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("key-%04d", i))
	}
	return keys
}

func TestAcquireAllAsksForFreeKeysSideBySide(t *testing.T) {
	own := func(keys []string) (opts []mongolock.AcquireOption) {
		for i, key := range keys {
			opts = append(opts, mongolock.For(key, mongolock.OneOf(1+i)))
		}
		return opts
	}
	for _, test := range []struct{ keys, trips int }{{1, 1}, {10, 1}, {64, 1}, {65, 2}, {1000, 16}} {
		keys := numbered(test.keys)
		for what, opts := range map[string][]mongolock.AcquireOption{
			"exclusive": {mongolock.MinHold(time.Minute)}, "shared": {mongolock.Shared()}, "options of their own": own(keys),
		} {
			t.Run(fmt.Sprint(test.keys, " ", what), func(t *testing.T) {
				lab.Test(t, func(t *testing.T, s *lab.Store) {
					claimsTake(s, linkTrip)
					c := newClient(t, s)
					start := time.Now()
					all, err := mongolock.AcquireAll(t.Context(), c, keys, opts...)
					require.NoError(t, err)
					tookBetween(t, start, time.Duration(test.trips)*linkTrip, time.Duration(test.trips)*linkTrip)
					assert.Equal(t, test.keys, s.Count(lab.Acquire))
					assert.Equal(t, test.keys, s.Count(), "calls")
					for i, l := range all {
						assert.Equal(t, keys[i], l.Key())
					}
					time.Sleep(time.Hour) // virtual: many renewals
					assert.NoError(t, errors.Join(all.Err(), all.Release()))
				})
			})
		}
	}
}

func TestAWrapperIsAskedSideBySideToo(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		claimsTake(s, linkTrip)
		wrapped := struct{ *mongolock.Client }{newClient(t, s)}
		start := time.Now()
		all, err := mongolock.AcquireAll(t.Context(), wrapped, numbered(10))
		require.NoError(t, err)
		tookBetween(t, start, linkTrip, linkTrip)
		assert.NoError(t, all.Release())
	})
}

// Keys that were granted after the first key that others hold are given back at once: the
// holders of that key may wait for them.
func TestAcquireAllKeepsOnlyTheKeysBeforeTheFirstThatIsHeld(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		one, two := newClient(t, s.Mem), newClient(t, s)
		held := acquire(t, one, "b")
		claimsTake(s, linkTrip)
		got := make(chan error, 1)
		var all mongolock.Leases
		go func() {
			var err error
			all, err = mongolock.AcquireAll(t.Context(), two, []string{"a", "b", "c", "d"}, mongolock.MinHold(time.Hour))
			got <- err
		}()
		time.Sleep(2 * linkTrip)
		synctest.Wait()
		assert.Equal(t, 2, s.Count(lab.Release))
		mustBeHeld(t, s.Mem, "a")
		mustBeFree(t, s.Mem, "c")
		mustBeFree(t, s.Mem, "d")
		c, err := one.TryAcquire(t.Context(), "c")
		require.NoError(t, err, "others can have it meanwhile")
		release(t, c)
		asked := s.Count(lab.Acquire)
		release(t, held)
		require.NoError(t, <-got)
		assert.Len(t, all, 4)
		assert.NoError(t, all.Err())
		assert.Equal(t, 3, s.Count(lab.Acquire)-asked, "b, c and d, one after the other")
	})
}

func TestAcquireAllBeginsNoMoreClaimsOnceOneIsRefused(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		acquire(t, newClient(t, s.Mem), "key-0000")
		claimsTake(s, linkTrip)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := mongolock.AcquireAll(ctx, newClient(t, s), numbered(1000))
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.LessOrEqual(t, s.Count(lab.Acquire), 2*64+5, "those under way, those that begin in that instant, and those of the wait")
	})
}

// A store that hangs for another key keeps no caller waiting for the one that is refused.
func TestAcquireAllTurnsToAKeyThatIsRefusedAlthoughAnotherHangs(t *testing.T) {
	for _, hangs := range []string{"a", "c"} { // before the key that is held, and behind it
		t.Run(hangs, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, s *lab.Store) {
				held := acquire(t, newClient(t, s.Mem), "b")
				var hung atomic.Bool
				s.On(lab.Acquire, func(ctx context.Context, call *lab.Call) error {
					if call.Key == hangs && !hung.Swap(true) {
						return lab.Hang(ctx, call)
					}
					time.Sleep(linkTrip) // it is refused when the others are asked for
					return call.Do()
				})
				time.AfterFunc(3*time.Second, func() { release(t, held) })
				start := time.Now()
				all, err := mongolock.AcquireAll(t.Context(), newClient(t, s), []string{"a", "b", "c"})
				require.NoError(t, err)
				tookBetween(t, start, 3*time.Second, 3*time.Second+3*linkTrip)
				assert.NoError(t, errors.Join(all.Err(), all.Release()))
			})
		})
	}
}

func TestAFaultOfAnotherKeyEndsAnAcquireAllThatHangs(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		s.On(lab.Acquire, func(ctx context.Context, call *lab.Call) error {
			if call.Key == "b" {
				return errNet
			}
			return lab.Hang(ctx, call)
		})
		start := time.Now()
		_, err := mongolock.AcquireAll(t.Context(), newClient(t, s), []string{"a", "b", "c"})
		assert.ErrorIs(t, err, errNet)
		tookBetween(t, start, 0, time.Second)
	})
}

func TestAcquireAllWaitsForKeysThatAreInUseHere(t *testing.T) {
	for what, use := range map[string]func(t *testing.T, c *mongolock.Client, s *lab.Store){
		"one is shared": func(t *testing.T, c *mongolock.Client, _ *lab.Store) {
			l := acquire(t, c, "b", mongolock.Shared())
			time.AfterFunc(time.Second, func() { _ = l.Release() })
		},
		"one is held": func(t *testing.T, c *mongolock.Client, _ *lab.Store) {
			l := acquire(t, c, "b")
			time.AfterFunc(time.Second, func() { _ = l.Release() })
		},
		"one is waited for": func(t *testing.T, c *mongolock.Client, s *lab.Store) {
			l := acquire(t, newClient(t, s.Mem), "b")
			wait := inBackground(t.Context(), c, "b")
			time.AfterFunc(time.Second, func() {
				_ = l.Release()
				_ = (<-wait).lease.Release()
			})
			synctest.Wait()
		},
	} {
		t.Run(what, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, s *lab.Store) {
				c := newClient(t, s)
				use(t, c, s)
				start := time.Now()
				all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b"})
				require.NoError(t, err)
				tookBetween(t, start, time.Second, time.Second+100*time.Millisecond)
				assert.NoError(t, all.Release())
			})
		})
	}
}

// A claim of unknown outcome is cleaned up, as that of a single key is.
func TestAFaultOfOneOfSeveralClaimsLeavesNothing(t *testing.T) {
	for what, apply := range map[string]bool{"the reply is lost": true, "the request is lost": false} {
		t.Run(what, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, s *lab.Store) {
				s.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
					if call.Key != "b" {
						return call.Do()
					}
					if apply {
						_ = call.Do()
					}
					return errNet
				})
				_, err := mongolock.AcquireAll(t.Context(), newClient(t, s), []string{"a", "b", "c"})
				require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
				assert.ErrorIs(t, err, errNet)
				assert.ErrorContains(t, err, `"b"`)
				synctest.Wait()
				assert.Equal(t, 1, s.Count(lab.Undo))
				for _, key := range []string{"a", "b", "c"} {
					mustBeFree(t, s.Mem, key)
				}
			})
		})
	}
}

func TestACallerThatLeavesWhileSeveralKeysAreTriedLeavesNothing(t *testing.T) {
	for what, opts := range map[string][]mongolock.AcquireOption{"its context ends": nil, "MaxWait exceeded": {mongolock.MaxWait(time.Second)}} {
		t.Run(what, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, s *lab.Store) {
				s.On(lab.Acquire, lab.Slow(0, 1800*time.Millisecond))
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				if len(opts) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				start := time.Now()
				_, err := mongolock.AcquireAll(ctx, newClient(t, s), []string{"a", "b"}, opts...)
				require.Error(t, err)
				assert.Equal(t, mongolock.OutcomeTimeout, mongolock.OutcomeOf(err))
				assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "it will be known")
				tookBetween(t, start, time.Second, time.Second+time.Millisecond)
				time.Sleep(2 * time.Second) // virtual: until it is answered and given back
				mustBeFree(t, s.Mem, "a")
				mustBeFree(t, s.Mem, "b")
			})
		})
	}
}

// What the attempts at the keys have shown is known, even if the store does not answer again in time.
func TestAnAcquireAllThatGivesUpSaysThatAKeyIsHeld(t *testing.T) {
	for what, opts := range map[string][]mongolock.AcquireOption{"MaxWait exceeded": {mongolock.MaxWait(3 * linkTrip / 2)}, "its context ends": nil} {
		t.Run(what, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, s *lab.Store) {
				acquire(t, newClient(t, s.Mem), "b")
				claimsTake(s, linkTrip)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if opts == nil {
					time.AfterFunc(3*linkTrip/2, cancel)
				}
				_, err := mongolock.AcquireAll(ctx, newClient(t, s), []string{"a", "b"}, opts...)
				var held *mongolock.HeldError
				require.ErrorAs(t, err, &held)
				assert.Equal(t, "b", held.Key)
				assert.Equal(t, opts == nil, errors.Is(err, context.Canceled))
				time.Sleep(time.Minute)
				mustBeFree(t, s.Mem, "a")
			})
		})
	}
}

// The clean-up of an earlier claim is waited for as long as by Acquire, and keeps no later key from others.
func TestAcquireAllWaitsForACleanUpInItsTurn(t *testing.T) {
	withUnsettledClaim(t, func(t *testing.T, c *mongolock.Client, b *lab.Store, mend func()) {
		mend()
		b.On(lab.Undo, lab.Slow(8*time.Second, 0)) // longer than TryAcquire waits for it
		time.AfterFunc(3*time.Second, func() {
			mustBeHeld(t, b, "j")
			mustBeFree(t, b, "l")
		})
		all, err := mongolock.AcquireAll(t.Context(), c, []string{"j", "k", "l"})
		require.NoError(t, err)
		assert.NoError(t, all.Release())
	})
}

// Callers that want the same keys may each be granted a part of them. One of them has the first key in
// order, and waits for the others, which keep none after the one that they were refused.
func TestCallersThatMeetOnSeveralKeysDoNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 6 {
			s, d := lab.New(mem), rand.New(rand.NewPCG(1, uint64(i)))
			var mu sync.Mutex // protects d
			s.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
				mu.Lock()
				trip := time.Duration(d.IntN(int(4 * time.Millisecond)))
				mu.Unlock()
				time.Sleep(trip) // virtual: the claims of a call arrive in any order
				return call.Do()
			})
			c := newClient(t, s)
			wg.Go(func() {
				for range 20 {
					all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b", "c"})
					if !assert.NoError(t, err) {
						return
					}
					time.Sleep(time.Millisecond) // virtual: others have their turn
					assert.NoError(t, errors.Join(all.Err(), all.Release()))
				}
			})
		}
		wg.Wait()
		tookBetween(t, start, 0, time.Minute)
	})
}

func TestAnObserverSeesEachClaimOfAnAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpLog()
		c := newClient(t, lab.New(memstore.New()), mongolock.WithObserver(o))
		all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b"})
		require.NoError(t, err)
		assert.NoError(t, all.Release())
		synctest.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		assert.Equal(t, 2, o.begun[mongolock.OpAcquire])
	})
}

// AcquireAll gives up: the keys that it has are given back before it returns.
func TestAcquireAllDoesNotOutliveItsContext(t *testing.T) {
	for _, how := range []string{"context", "MaxWait"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				acquire(t, newClient(t, mem), "b")
				b := lab.New(mem)
				c := newClient(t, b)
				b.All(func(ctx context.Context, call *lab.Call) error {
					if call.Op == lab.Release {
						return lab.Hang(ctx, nil)
					}
					_ = call.Do()
					return nil
				})
				start := time.Now()
				ctx, opts := t.Context(), []mongolock.AcquireOption{mongolock.MaxWait(2 * time.Second)}
				if how == "context" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
					defer cancel()
					opts = nil
				}
				_, err := mongolock.AcquireAll(ctx, c, []string{"a", "b"}, opts...)
				assert.Error(t, err)
				t.Logf("%s: returned after %v", how, time.Since(start))
				assert.LessOrEqual(t, time.Since(start), 3*time.Second)
				b.All(nil)
			})
		})
	}
}
