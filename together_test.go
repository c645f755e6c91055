package mongolock_test

import (
	"context"
	"errors"
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

// A bulkStore is a hookedStore that claims and releases many keys at once, and lets a hook
// replace the former.
type bulkStore struct {
	*hookedStore
	many func(ctx context.Context, batch []store.Claim, do func() []store.Claimed) []store.Claimed
}

func newBulkStore() *bulkStore { return &bulkStore{hookedStore: newHookedStore(memstore.New())} }

func (s *bulkStore) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	s.called("acquire many")
	do := func() []store.Claimed { return s.mem.AcquireMany(context.WithoutCancel(ctx), batch) }
	if s.many != nil {
		return s.many(ctx, batch, do)
	}
	return do()
}

func allClaimed(batch []store.Claim, err error) []store.Claimed {
	answers := make([]store.Claimed, len(batch))
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

func TestAcquireAllClaimsIdleKeysWithOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBulkStore()
		c := newClient(t, s)
		all, err := mongolock.AcquireAll(t.Context(), c, []string{"c", "a", "b"}, mongolock.MinHold(time.Minute))
		require.NoError(t, err)
		assert.Equal(t, 1, s.total(), "calls")
		for i, key := range []string{"c", "a", "b"} {
			assert.Equal(t, key, all[i].Key())
			mustBeHeld(t, s.mem, key)
		}
		time.Sleep(time.Hour) // virtual: many renewals
		assert.NoError(t, all.Err(), "they are renewed")
		assert.NoError(t, all.Release())
		assert.Equal(t, 1, s.count("release"))
	})
}

func TestAWrapperIsAskedForOneKeyAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBulkStore()
		wrapped := struct{ *mongolock.Client }{newClient(t, s)}
		all, err := mongolock.AcquireAll(t.Context(), wrapped, []string{"a", "b"})
		require.NoError(t, err)
		assert.Equal(t, 2, s.count("acquire"))
		assert.Zero(t, s.count("acquire many"))
		assert.NoError(t, all.Release())
	})
}

// Keys that were granted after the first key that others hold are given back at once: the
// holders of that key may wait for them.
func TestAcquireAllKeepsOnlyTheKeysBeforeTheFirstThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBulkStore()
		one, two := newClient(t, s.mem), newClient(t, s)
		held := acquire(t, one, "b")
		got := make(chan error, 1)
		var all mongolock.Leases
		go func() {
			var err error
			all, err = mongolock.AcquireAll(t.Context(), two, []string{"a", "b", "c", "d"}, mongolock.MinHold(time.Hour))
			got <- err
		}()
		synctest.Wait()
		assert.Equal(t, 1, s.count("acquire many"))
		assert.Equal(t, 1, s.count("release"))
		mustBeHeld(t, s.mem, "a")
		mustBeFree(t, s.mem, "c")
		mustBeFree(t, s.mem, "d")
		c, err := one.TryAcquire(t.Context(), "c")
		require.NoError(t, err)
		release(t, c)
		release(t, held)
		require.NoError(t, <-got)
		assert.Len(t, all, 4)
		assert.NoError(t, all.Err())
		assert.Equal(t, 1, s.count("acquire many"), "from there on one after the other")
	})
}

func TestKeysThatAreInUseHereAreClaimedOneByOne(t *testing.T) {
	for what, use := range map[string]func(t *testing.T, c *mongolock.Client, s *bulkStore){
		"one is shared": func(t *testing.T, c *mongolock.Client, _ *bulkStore) {
			l := acquire(t, c, "b", mongolock.Shared())
			time.AfterFunc(time.Second, func() { _ = l.Release() })
		},
		"one is held": func(t *testing.T, c *mongolock.Client, _ *bulkStore) {
			l := acquire(t, c, "b")
			time.AfterFunc(time.Second, func() { _ = l.Release() })
		},
		"one is waited for": func(t *testing.T, c *mongolock.Client, s *bulkStore) {
			l := acquire(t, newClient(t, s.mem), "b")
			wait := inBackground(t.Context(), c, "b")
			time.AfterFunc(time.Second, func() {
				_ = l.Release()
				_ = (<-wait).lease.Release()
			})
			synctest.Wait()
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBulkStore()
				c := newClient(t, s)
				use(t, c, s)
				all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b"})
				require.NoError(t, err)
				assert.Zero(t, s.count("acquire many"))
				assert.NoError(t, all.Release())
			})
		})
	}
}

func TestAStoreThatRefusesBulksOfClaimsIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBulkStore()
		s.many = func(_ context.Context, batch []store.Claim, _ func() []store.Claimed) []store.Claimed {
			return allClaimed(batch, errors.Join(errors.ErrUnsupported, store.ErrNotApplied))
		}
		log := newOpLog()
		c := newClient(t, s, mongolock.WithObserver(log))
		for range 3 {
			all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b"})
			require.NoError(t, err)
			assert.NoError(t, all.Release())
		}
		assert.Equal(t, 1, s.count("acquire many"))
		assert.Contains(t, log.ended[0], "unsupported operation", "nobody was granted anything")
		assert.Equal(t, 6, s.count("acquire"))
	})
}

func TestABulkOfUnknownOutcomeIsUndoneClaimByClaim(t *testing.T) {
	for what, apply := range map[string]bool{"the reply is lost": true, "the request is lost": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBulkStore()
				s.many = func(_ context.Context, batch []store.Claim, do func() []store.Claimed) []store.Claimed {
					if apply {
						do()
					}
					return allClaimed(batch, errNet)
				}
				c := newClient(t, s)
				_, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b", "c"})
				require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
				assert.ErrorIs(t, err, errNet)
				assert.ErrorContains(t, err, `"a"`)
				synctest.Wait()
				assert.Equal(t, 3, s.count("undo"))
				for _, key := range []string{"a", "b", "c"} {
					mustBeFree(t, s.mem, key)
				}
			})
		})
	}
}

// One claim of a bulk may fail while others are granted: nothing of it stays.
func TestAFaultOfOneClaimOfABulkLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBulkStore()
		s.many = func(_ context.Context, _ []store.Claim, do func() []store.Claimed) []store.Claimed {
			answers := do()
			answers[1] = store.Claimed{Err: errNet}
			return answers
		}
		c := newClient(t, s)
		_, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b", "c"})
		require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		assert.ErrorContains(t, err, `"b"`)
		synctest.Wait()
		for _, key := range []string{"a", "b", "c"} {
			mustBeFree(t, s.mem, key)
		}
	})
}

func TestACallerThatLeavesDuringABulkLeavesNothing(t *testing.T) {
	for what, opts := range map[string][]mongolock.AcquireOption{"its context ends": nil, "MaxWait is over": {mongolock.MaxWait(time.Second)}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBulkStore()
				s.many = func(_ context.Context, _ []store.Claim, do func() []store.Claimed) []store.Claimed {
					defer time.Sleep(1800 * time.Millisecond) // virtual: applied, and answered late
					return do()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				if len(opts) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				start := time.Now()
				_, err := mongolock.AcquireAll(ctx, newClient(t, s), []string{"a", "b"}, opts...)
				require.Error(t, err)
				assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "it will be known")
				tookBetween(t, start, time.Second, time.Second)
				time.Sleep(time.Second) // virtual: until it is answered and given back
				mustBeFree(t, s.mem, "a")
				mustBeFree(t, s.mem, "b")
			})
		})
	}
}

func TestTrustInABulkBeginsWhenItIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBulkStore()
		slow := 6 * time.Second
		s.many = func(_ context.Context, _ []store.Claim, do func() []store.Claimed) []store.Claimed {
			defer time.Sleep(slow) // virtual: the answer is late
			return do()
		}
		c := newClient(t, s)
		all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b"}, mongolock.TTL(10*time.Second), mongolock.NoRenewal())
		require.NoError(t, err)
		for _, l := range all {
			assert.LessOrEqual(t, l.Remaining(), 3*time.Second, "10 s less the 6 s of the reply and the margin")
		}
		assert.NoError(t, all.Release())
		slow = 9500 * time.Millisecond
		_, err = mongolock.AcquireAll(t.Context(), c, []string{"a", "b"}, mongolock.TTL(10*time.Second))
		require.ErrorContains(t, err, "too late")
		synctest.Wait()
		mustBeFree(t, s.mem, "a")
		mustBeFree(t, s.mem, "b")
	})
}

// Two callers that want the same keys in one bulk each may be granted a part of them. One of
// them has the first key in order, and waits for the other, which keeps none.
func TestBulksThatMeetDoNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 6 {
			s := &bulkStore{hookedStore: newHookedStore(mem)}
			s.many = func(_ context.Context, batch []store.Claim, _ func() []store.Claimed) []store.Claimed {
				answers := make([]store.Claimed, len(batch))
				for k := range batch { // each begins elsewhere, and takes a while
					at := (k + i) % len(batch)
					answers[at].Grant, answers[at].Err = mem.Acquire(context.Background(), batch[at])
					time.Sleep(time.Millisecond) // virtual: a claim takes a while
				}
				return answers
			}
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

func TestAnObserverSeesABulkOfClaimsAsOneOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBulkStore()
		o := newOpLog()
		c := newClient(t, s, mongolock.WithObserver(o))
		all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b"})
		require.NoError(t, err)
		assert.NoError(t, all.Release())
		synctest.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		assert.Equal(t, 1, o.begun[mongolock.OpAcquire])
		assert.Contains(t, o.ended, "acquire  token=0 count=2 ok")
	})
}
