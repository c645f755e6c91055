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
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

const linkTrip = 20 * time.Millisecond

// A linkStore is a store behind a link of 20 ms. It counts how many releases were under way at a time.
type linkStore struct {
	*lab.Store
	busy, most atomic.Int64
}

// releases has a hook decide about releases that have come over the link; nil makes them.
func (s *linkStore) releases(h lab.Hook) {
	s.On(lab.Release, func(ctx context.Context, call *lab.Call) error {
		for now, most := s.busy.Add(1), s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); {
			most = s.most.Load()
		}
		defer s.busy.Add(-1)
		if err := trip(ctx); err != nil {
			return err
		}
		if h != nil {
			return h(ctx, call)
		}
		return call.Do()
	})
}

func trip(ctx context.Context) error {
	select {
	case <-time.After(linkTrip):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newLinkStore() *linkStore {
	s := &linkStore{Store: lab.New(memstore.New())}
	s.releases(nil)
	s.On(lab.Notify, func(ctx context.Context, call *lab.Call) error {
		if err := trip(ctx); err != nil {
			return err
		}
		return call.Do()
	})
	return s
}

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
	for status, err := range s.Mem.List(context.WithoutCancel(t.Context()), "") {
		require.NoError(t, err)
		if !status.Free() {
			n++
		}
	}
	return n
}

// loseAll loses five thousand leases, and returns once the first of them are given back.
func loseAll(t *testing.T, s *linkStore) {
	t.Helper()
	leases := hold(t, newClient(t, s), 5_000)
	s.On(lab.Renew, lab.Fail(errNet))
	for _, l := range leases {
		<-l.Done()
	}
	s.Reset()
}

func TestCloseWakesTheWaitersOfManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		c, other := newClient(t, s), newClient(t, s.Mem)
		hold(t, c, 1000)
		var waits []<-chan result
		for i := range 100 {
			waits = append(waits, inBackground(t.Context(), other, fmt.Sprint("key-", 10*i)))
		}
		time.Sleep(5 * time.Second) // they stand in line, and sleep
		s.Reset()
		start := time.Now()
		assert.NoError(t, c.Close())
		assert.Equal(t, 1000, s.Count(lab.Release))
		assert.Equal(t, 100, s.Count(lab.Notify))
		assert.Equal(t, 1100, s.Count(), "calls")
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
		s.releases(func(ctx context.Context, call *lab.Call) error {
			if call.Key == "key-500" {
				return lab.Hang(ctx, nil)
			}
			return call.Do()
		})
		c := newClient(t, s)
		hold(t, c, 3000)
		s.Reset()
		start := time.Now()
		time.AfterFunc(time.Second+48*linkTrip, func() { assert.Equal(t, 1, s.taken(t), "keys that are taken") })
		err := c.Close()
		tookBetween(t, start, 6*time.Second, 6*time.Second)
		assert.Equal(t, 1, s.taken(t), "keys that are taken")
		assert.Equal(t, 3001, s.Count(lab.Release), "one of them twice")
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
				s.releases(func(_ context.Context, call *lab.Call) error {
					if _, again := lost.LoadOrStore(call.Key, true); again {
						return call.Do()
					}
					if apply {
						_ = call.Do()
					}
					return errNet
				})
				c, other := newClient(t, s), newClient(t, s.Mem)
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
		require.NoError(t, s.Mem.Break(t.Context(), store.Ref{Key: "key-3", ID: leases[3].ID(), Mode: store.Exclusive}, "by hand", true))
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
