package mongolock_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
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

// A linkStore is a store behind a link of 20 ms, on which a bulk of releases takes two
// trips. It counts the calls of each kind.
type linkStore struct {
	*hookedStore
	bulk func(ctx context.Context, batch []store.Ending, do func([]store.Ending) []store.Ended) []store.Ended // nil: the trips
}

func (s *linkStore) Release(ctx context.Context, batch []store.Ending) []store.Ended {
	if len(batch) == 1 {
		if err := trip(ctx); err != nil {
			return []store.Ended{{Err: err}}
		}
		return s.hookedStore.Release(ctx, batch)
	}
	s.called("release many")
	do := func(batch []store.Ending) []store.Ended { return s.mem.Release(context.WithoutCancel(ctx), batch) }
	if s.bulk != nil {
		return s.bulk(ctx, batch, do)
	}
	time.Sleep(2 * linkTrip)
	return do(batch)
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

func TestCloseFreesTenThousandKeysOverASlowLink(t *testing.T) {
	for what, opts := range map[string][]mongolock.AcquireOption{
		"exclusive": nil, "permits": {mongolock.OneOf(3)}, "shared": {mongolock.Shared()},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLinkStore()
				c := newClient(t, s)
				hold(t, c, 10_000, opts...)
				s.reset()
				start := time.Now()
				assert.NoError(t, c.Close())
				tookBetween(t, start, time.Second, time.Second+2*linkTrip)
				assert.Zero(t, s.taken(t), "keys that are taken")
				assert.Equal(t, 10, s.count("release many"))
				assert.Equal(t, 10, s.total(), "calls")
			})
		})
	}
}

// releasesOfLost returns how many calls give back leases that were lost together.
func releasesOfLost(t *testing.T) (calls int) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		leases := hold(t, newClient(t, s), 5_000)
		renewalsFail(s.hookedStore, errNet)
		for _, l := range leases {
			<-l.Done()
		}
		s.reset()
		time.Sleep(time.Minute) // virtual: all are given back
		calls = s.count("release") + s.count("release many")
	})
	return calls
}

// A server that was too slow to renew them is too slow for one command for each. Four goroutines
// give them back, in bulks. Each begins with what was lost when it came to run.
func TestThousandsOfLostLeasesAreGivenBackInBulks(t *testing.T) {
	assert.LessOrEqual(t, releasesOfLost(t), 4+5)
}

func TestCloseWakesTheWaitersOfABulkWithOneCall(t *testing.T) {
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
		assert.Equal(t, 1, s.count("notify"))
		assert.Equal(t, 2, s.total(), "calls")
		for _, w := range waits {
			r := <-w
			require.NoError(t, r.err)
			assert.LessOrEqual(t, r.when.Sub(start), time.Second+4*linkTrip, "from Close to the grant")
			release(t, r.lease)
		}
	})
}

func TestCloseFreesTheOtherKeysWhileOneRecordIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		s.bulk = func(ctx context.Context, batch []store.Ending, do func([]store.Ending) []store.Ended) []store.Ended {
			for i, e := range batch {
				if e.Key != "key-500" {
					continue
				}
				do(batch[:i]) // the server goes on with what follows once the record is free
				<-ctx.Done()
				return allEnded(batch, ctx.Err())
			}
			time.Sleep(2 * linkTrip)
			return do(batch)
		}
		s.hook(func(h *hooks) {
			h.release = func(ctx context.Context, r store.Ref, do func() store.Ended) store.Ended {
				if r.Key == "key-500" {
					return store.Ended{Err: untilDone(ctx)}
				}
				return do()
			}
		})
		c := newClient(t, s)
		hold(t, c, 3000)
		start := time.Now()
		err := c.Close()
		tookBetween(t, start, 6*time.Second, 6*time.Second)
		assert.Equal(t, 1, s.taken(t), "keys that are taken")
		assert.ErrorContains(t, err, `"key-500"`)
		joined, ok := err.(interface{ Unwrap() []error })
		require.True(t, ok)
		assert.Len(t, joined.Unwrap(), 1)
	})
}

func TestAReplyThatIsLostLeavesEachReleaseOfABulkUnknown(t *testing.T) {
	for what, apply := range map[string]bool{"the reply is lost": true, "the request is lost": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLinkStore()
				var once sync.Once
				s.bulk = func(_ context.Context, batch []store.Ending, do func([]store.Ending) []store.Ended) (answers []store.Ended) {
					lost := false
					once.Do(func() { lost = true })
					if !lost || apply {
						answers = do(batch)
					}
					if lost {
						return allEnded(batch, errNet)
					}
					return answers
				}
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

func TestABulkAnswersForLeasesThatAreGone(t *testing.T) {
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

func TestABulkKeepsTheKeysThatMinHoldKeeps(t *testing.T) {
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

func allEnded(batch []store.Ending, err error) []store.Ended {
	answers := make([]store.Ended, len(batch))
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}
