package mongolock_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

const linkTrip = 20 * time.Millisecond

// A linkStore is a store behind a link of 20 ms. It counts the calls of each kind, and how many
// releases were under way at a time.
type linkStore struct {
	*hookedStore
	busy, most atomic.Int64
}

func (s *linkStore) Release(ctx context.Context, e store.Ending) (store.Ended, error) {
	for now, most := s.busy.Add(1), s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); {
		most = s.most.Load()
	}
	defer s.busy.Add(-1)
	if err := trip(ctx); err != nil {
		s.called("release")
		return store.Ended{}, err
	}
	return s.hookedStore.Release(ctx, e)
}

func (s *linkStore) Notify(ctx context.Context, all ...store.Notice) error {
	s.called("notify")
	if err := trip(ctx); err != nil {
		return err
	}
	return s.mem.Notify(ctx, all...)
}

func (s *linkStore) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return s.mem.Watch(ctx, of)
}

func trip(ctx context.Context) error {
	select {
	case <-time.After(linkTrip):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newLinkStore() *linkStore { return &linkStore{hookedStore: newHookedStore(memstore.New())} }

// hold takes n keys.
func hold(t *testing.T, c *mongolock.Client, n int, opts ...mongolock.AcquireOption) []*mongolock.Lease {
	t.Helper()
	var leases []*mongolock.Lease
	for i := range n {
		leases = append(leases, acquire(t, c, fmt.Sprint("key-", i), opts...))
	}
	return leases
}

func (s *linkStore) taken(t *testing.T) (n int) {
	t.Helper()
	for status, err := range s.mem.List(context.WithoutCancel(t.Context()), "") {
		require.NoError(t, err)
		if !status.Free() {
			n++
		}
	}
	return n
}

func TestCloseReleasesSixtyFourLeasesAtATime(t *testing.T) {
	for _, test := range []struct{ leases, trips int }{{64, 1}, {1000, 16}, {10_000, 157}} {
		for what, opts := range map[string][]mongolock.AcquireOption{
			"exclusive": nil, "permits": {mongolock.OneOf(3)}, "shared": {mongolock.Shared()},
		} {
			t.Run(fmt.Sprint(test.leases, " ", what), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newLinkStore()
					c := newClient(t, s)
					hold(t, c, test.leases, opts...)
					s.reset()
					start, took := time.Now(), time.Second+time.Duration(test.trips)*linkTrip
					assert.NoError(t, c.Close())
					tookBetween(t, start, took, took)
					assert.Zero(t, s.taken(t), "keys that are taken")
					assert.Equal(t, test.leases, s.count("release"))
					assert.Equal(t, test.leases, s.total(), "calls")
				})
			})
		}
	}
}

// loseAll loses five thousand leases, and returns once the first of them are given back.
func loseAll(t *testing.T, s *linkStore) {
	t.Helper()
	leases := hold(t, newClient(t, s), 5_000)
	renewalsFail(s.hookedStore, errNet)
	for _, l := range leases {
		<-l.Done()
	}
	s.reset()
}

// A server that was too slow to renew them is too slow for all their releases at a time.
func TestThousandsOfLostLeasesAreGivenBackFourAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		loseAll(t, s)
		time.Sleep(time.Minute) // virtual: all are given back
		assert.Zero(t, s.taken(t))
		assert.EqualValues(t, 4, s.most.Load(), "at a time")
		assert.Equal(t, 5_000, s.count("release"))
	})
}

// They run out by themselves: to try each would take a hung store hours.
func TestLostLeasesThatRanOutAreLeftToThemselvesWhileReleasesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		s.hook(func(h *hooks) {
			h.release = func(ctx context.Context, _ store.Ref, _ func() (store.Ended, error)) (store.Ended, error) {
				return store.Ended{}, untilDone(ctx)
			}
		})
		loseAll(t, s)
		time.Sleep(time.Minute) // virtual
		assert.LessOrEqual(t, s.count("release"), 50, "four and some repetitions every five seconds, for a TTL")
		s.hook(func(h *hooks) { h.release, h.renew = nil, nil })
		late := acquire(t, newClient(t, s), "another", mongolock.NoRenewal(), mongolock.TTL(10*time.Second))
		<-late.Done()
		time.Sleep(5 * time.Second) // virtual
		mustBeFree(t, s.mem, "another")
	})
}

func TestFailedReleasesAreRepeatedSixteenAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		leases := mongolock.Leases(hold(t, newClient(t, s), 1000))
		s.hook(func(h *hooks) {
			h.release = func(context.Context, store.Ref, func() (store.Ended, error)) (store.Ended, error) {
				return store.Ended{}, errNet
			}
		})
		assert.ErrorIs(t, leases.Release(), errNet)
		s.hook(func(h *hooks) { h.release = nil })
		s.most.Store(0)
		time.Sleep(10 * time.Second) // virtual
		assert.Zero(t, s.taken(t))
		assert.EqualValues(t, 16, s.most.Load(), "at a time")
	})
}

// A thousand releases that hang take five minutes, sixteen at a time: most leases run out before their
// turn comes.
func TestReleasesAreNotRepeatedOnceTheirLeasesRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		leases := hold(t, newClient(t, s), 1000, mongolock.TTL(30*time.Second))
		s.hook(func(h *hooks) {
			h.release = func(ctx context.Context, _ store.Ref, _ func() (store.Ended, error)) (store.Ended, error) {
				return store.Ended{}, untilDone(ctx)
			}
		})
		for _, l := range leases {
			go func() { assert.Error(t, l.Release()) }()
		}
		time.Sleep(40 * time.Second) // virtual: a TTL, and what was under way then
		s.reset()
		time.Sleep(10 * time.Minute) // virtual
		assert.Zero(t, s.count("release"))
		for _, l := range leases {
			assert.NoError(t, l.Release(), "it ran out")
		}
	})
}

func TestCloseWakesTheWaitersOfManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		c, other := newClient(t, s), newClient(t, s.mem)
		hold(t, c, 1000)
		var waits []<-chan result
		for i := range 100 {
			waits = append(waits, inBackground(t.Context(), other, fmt.Sprint("key-", 10*i)))
		}
		time.Sleep(5 * time.Second) // they stand in line, and sleep
		s.reset()
		start := time.Now()
		assert.NoError(t, c.Close())
		assert.Equal(t, 1000, s.count("release"))
		assert.Equal(t, 100, s.count("notify"))
		assert.Equal(t, 1100, s.total(), "calls")
		for _, w := range waits {
			r := <-w
			require.NoError(t, r.err)
			assert.LessOrEqual(t, r.when.Sub(start), time.Second+20*linkTrip, "from Close to the grant")
			release(t, r.lease)
		}
	})
}

func TestCloseFreesTheOtherKeysWhileOneRecordIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		s.hook(func(h *hooks) {
			h.release = func(ctx context.Context, r store.Ref, do func() (store.Ended, error)) (store.Ended, error) {
				if r.Key == "key-500" {
					return store.Ended{}, untilDone(ctx)
				}
				return do()
			}
		})
		c := newClient(t, s)
		hold(t, c, 3000)
		s.reset()
		start := time.Now()
		time.AfterFunc(time.Second+48*linkTrip, func() { assert.Equal(t, 1, s.taken(t), "keys that are taken") })
		err := c.Close()
		tookBetween(t, start, 6*time.Second, 6*time.Second)
		assert.Equal(t, 1, s.taken(t), "keys that are taken")
		assert.Equal(t, 3001, s.count("release"), "one of them twice")
		assert.ErrorContains(t, err, `"key-500"`)
		joined, ok := err.(interface{ Unwrap() []error })
		require.True(t, ok)
		assert.Len(t, joined.Unwrap(), 1)
	})
}

func TestReleasesWhoseRepliesAreLostAreRepeated(t *testing.T) {
	for what, apply := range map[string]bool{"the reply is lost": true, "the request is lost": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLinkStore()
				var lost sync.Map
				s.hook(func(h *hooks) {
					h.release = func(_ context.Context, r store.Ref, do func() (store.Ended, error)) (store.Ended, error) {
						if _, again := lost.LoadOrStore(r.Key, true); again {
							return do()
						}
						if apply {
							_, _ = do()
						}
						return store.Ended{}, errNet
					}
				})
				c, other := newClient(t, s), newClient(t, s.mem)
				hold(t, c, 100)
				wait := inBackground(t.Context(), other, "key-7")
				time.Sleep(5 * time.Second)
				start := time.Now()
				assert.NoError(t, c.Close())
				tookBetween(t, start, time.Second, 2*time.Second)
				r := <-wait
				require.NoError(t, r.err)
				assert.Less(t, r.when.Sub(start), 2*time.Second, "a waiter is told though the reply was lost")
				release(t, r.lease)
				assert.Zero(t, s.taken(t), "keys that are taken")
			})
		})
	}
}

func TestTheReleaseOfManyLeasesTellsWhichAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		c := newClient(t, s)
		leases := hold(t, c, 100)
		require.NoError(t, s.mem.Break(t.Context(), store.Ref{Key: "key-3", ID: leases[3].ID(), Mode: store.Exclusive}, "by hand", true))
		err := mongolock.Leases(leases).Release()
		assert.ErrorIs(t, err, mongolock.ErrLost)
		assert.ErrorContains(t, err, `"key-3"`)
		joined, ok := err.(interface{ Unwrap() []error })
		require.True(t, ok)
		assert.Len(t, joined.Unwrap(), 1)
		assert.Zero(t, s.taken(t))
	})
}

func TestCloseKeepsTheKeysThatMinHoldKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		c := newClient(t, s)
		hold(t, c, 100, mongolock.MinHold(time.Minute))
		assert.NoError(t, c.Close())
		assert.Equal(t, 100, s.taken(t))
		time.Sleep(time.Minute)
		assert.Zero(t, s.taken(t))
	})
}
