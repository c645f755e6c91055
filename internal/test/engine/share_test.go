package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

func TestReadersHoldAKeyTogetherAndAWriterWaitsForAll(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		one, two := newClient(t, b), newClient(t, b)
		var readers []*mongolock.Lease
		for range 3 {
			readers = append(readers, acquire(t, one, "k", mongolock.Shared()), acquire(t, two, "k", mongolock.Shared()))
		}
		wait := inBackground(t.Context(), one, "k")
		for _, l := range readers {
			time.Sleep(time.Minute) // renewed
			require.Empty(t, wait, "a writer holds the key together with readers")
			assert.NoError(t, l.Err())
			release(t, l)
		}
		start := time.Now()
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, start, 0, 0)
		for _, l := range readers {
			assert.Greater(t, r.lease.Token(), l.Token(), "the writer's token")
		}
		late := inBackground(t.Context(), two, "k", mongolock.Shared())
		time.Sleep(time.Minute)
		assert.Empty(t, late, "a reader holds the key together with the writer")
		release(t, r.lease)
		release(t, (<-late).lease)
		mustBeFree(t, b, "k")
	})
}

func TestNoMorePermitsAreGrantedThanThereAre(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		clients := []*mongolock.Client{newClient(t, b), newClient(t, b)}
		var mu sync.Mutex // protects inside and most
		inside, most := 0, 0
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for range 5 {
					err := mongolock.Do(t.Context(), clients[i%2], "k", func(context.Context, *mongolock.Lease) error {
						mu.Lock()
						inside++
						most = max(most, inside)
						mu.Unlock()
						time.Sleep(10 * time.Millisecond)
						mu.Lock()
						inside--
						mu.Unlock()
						return nil
					}, mongolock.OneOf(3))
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 3, most, "permits that were in use at once")
		mustBeFree(t, b, "k")
	})
}

// Heavy and light claims of two clients, each of which comes again as soon as it has had its permits.
func TestWeightsAreNeverMoreThanThePermitsAndEachIsServed(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		clients := []*mongolock.Client{newClient(t, b), newClient(t, b)}
		var mu sync.Mutex // protects inside and most
		inside, most := 0, 0
		take := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			inside += n
			most = max(most, inside)
		}
		served := map[int]int{}
		over := time.Now().Add(30 * time.Second)
		var wg sync.WaitGroup
		for i, weight := range []int{1, 1, 1, 1, 2, 3, 4, 1, 2, 4} {
			wg.Go(func() {
				for time.Now().Before(over) {
					err := mongolock.Do(t.Context(), clients[i%2], "k", func(context.Context, *mongolock.Lease) error {
						take(weight)
						time.Sleep(time.Duration(5+i) * time.Millisecond)
						take(-weight)
						return nil
					}, mongolock.OneOf(4), mongolock.Weight(weight), mongolock.MaxWait(5*time.Second))
					assert.NoError(t, err, "weight %d", weight)
					mu.Lock()
					served[weight]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 4, most, "permits that were in use at once")
		assert.Greater(t, served[4], served[1]/10, "%v", served)
		mustBeFree(t, b, "k")
	})
}

func TestAHeavyWaiterIsToldOnceEnoughPermitsAreFree(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		one, two := newClient(t, b), newClient(t, b)
		three := acquire(t, one, "k", mongolock.OneOf(10), mongolock.Weight(3))
		six := acquire(t, one, "k", mongolock.OneOf(10), mongolock.Weight(6))
		heavy := inBackground(t.Context(), two, "k", mongolock.OneOf(10), mongolock.Weight(8))
		synctest.Wait()
		light := inBackground(t.Context(), newClient(t, b), "k", mongolock.OneOf(10))
		time.Sleep(time.Minute)
		release(t, three)
		time.Sleep(time.Minute)
		require.Empty(t, light, "it overtakes a claim that waits for more permits")
		var held *mongolock.HeldError
		_, err := two.TryAcquire(t.Context(), "k", mongolock.OneOf(10))
		require.ErrorAs(t, err, &held)
		assert.Contains(t, err.Error(), "with 6 permits")
		assert.Equal(t, 6, held.Taken())
		start := time.Now()
		release(t, six)
		h, l := <-heavy, <-light
		tookBetween(t, start, 0, 10*time.Millisecond)
		release(t, h.lease)
		release(t, l.lease)
		mustBeFree(t, b, "k")
	})
}

// So an operator lowers the number of permits at run time.
func TestAHeavyLeaseLowersTheNumberOfPermitsWhileItLasts(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c, operator := newClient(t, b), newClient(t, b)
		one := func() *mongolock.Lease { return acquire(t, c, "k", mongolock.OneOf(4)) }
		held := []*mongolock.Lease{one(), one(), one()}
		reserve := inBackground(t.Context(), operator, "k", mongolock.OneOf(4), mongolock.Weight(3))
		time.Sleep(time.Second)
		var next []<-chan result
		for range 3 {
			next = append(next, inBackground(t.Context(), c, "k", mongolock.OneOf(4)))
			synctest.Wait()
		}
		release(t, held[0])
		time.Sleep(time.Minute)
		assert.Empty(t, reserve, "too few have left")
		assert.Empty(t, next[0], "granted before it")
		require.NoError(t, held[1].Err())
		release(t, held[1])
		three := (<-reserve).lease
		time.Sleep(time.Minute)
		assert.Empty(t, next[0], "one is left to all others, and it is held")
		release(t, held[2])
		first := (<-next[0]).lease
		time.Sleep(time.Minute)
		assert.Empty(t, next[1])
		start := time.Now()
		release(t, three)
		for _, l := range []*mongolock.Lease{first, (<-next[1]).lease, (<-next[2]).lease} {
			release(t, l)
		}
		tookBetween(t, start, 0, 10*time.Millisecond)
		mustBeFree(t, b, "k")
	})
}

// A dead waiter is not passed that was not offered the key: it counts until its place is stale.
func TestAHeavyWaiterThatDiedKeepsOthersOutForHalfAMinute(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k", mongolock.OneOf(4), mongolock.Weight(2))
		dead := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Permits}, Limit: 4, Weight: 3, TTL: time.Minute}
		dead.Place = store.NewPlace(store.Permits, 4, 3, "dead")
		_, err := b.Mem.Acquire(t.Context(), dead)
		require.ErrorIs(t, err, store.ErrHeld)
		start := time.Now()
		light := acquire(t, newClient(t, b), "k", mongolock.OneOf(4))
		tookBetween(t, start, store.ReserveFor, store.ReserveFor+time.Second)
		release(t, light)
		release(t, l)
	})
}

func TestAWaiterForAPermitGetsItWhenTheFirstHolderExpires(t *testing.T) {
	for _, feed := range []bool{true, false} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			var opts []mongolock.ClientOption
			if !feed {
				opts = append(opts, mongolock.WithoutFeed())
			}
			for i, ttl := range []time.Duration{time.Hour, 20 * time.Second, time.Minute} {
				dead := store.Claim{Ref: store.Ref{Key: "k", ID: fmt.Sprint(i), Mode: store.Permits}, Limit: 3, TTL: ttl}
				_, err := b.Mem.Acquire(t.Context(), dead)
				require.NoError(t, err)
			}
			start := time.Now()
			acquire(t, newClient(t, b, opts...), "k", mongolock.OneOf(3))
			tookBetween(t, start, 20*time.Second, 20*time.Second+50*time.Millisecond)
		})
	}
}

func TestAClaimInAnotherModeFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		acquire(t, c, "shared", mongolock.Shared())
		acquire(t, c, "permits", mongolock.OneOf(3))
		start := time.Now()
		for _, x := range []struct {
			key  string
			opts []mongolock.AcquireOption
			says string
		}{
			{"shared", []mongolock.AcquireOption{mongolock.OneOf(2)}, `mongolock: "shared" is in use as shared, not as permits`},
			{"permits", []mongolock.AcquireOption{mongolock.Shared()}, `mongolock: "permits" is in use as permits, not as shared`},
		} {
			_, wait := c.Acquire(t.Context(), x.key, x.opts...)
			_, try := c.TryAcquire(t.Context(), x.key, x.opts...)
			for _, err := range []error{wait, try} {
				assert.ErrorIs(t, err, mongolock.ErrModeMismatch)
				assert.NotErrorIs(t, err, mongolock.ErrHeld)
				assert.EqualError(t, err, x.says)
			}
		}
		tookBetween(t, start, 0, 0)
		release(t, acquire(t, c, "other", mongolock.OneOf(2)))
	})
}

func TestInvalidModesAreRefused(t *testing.T) {
	c := newClient(t, memstore.New())
	const both = "mongolock: Shared and OneOf: only one of them can be given, and only one number of permits"
	for _, x := range []struct {
		says string
		opts []mongolock.AcquireOption
	}{
		{"mongolock: OneOf(0): must be between 1 and 10000", []mongolock.AcquireOption{mongolock.OneOf(0)}},
		{"mongolock: OneOf(-1): must be between 1 and 10000", []mongolock.AcquireOption{mongolock.OneOf(-1)}},
		{"mongolock: OneOf(10001): must be between 1 and 10000", []mongolock.AcquireOption{mongolock.OneOf(10_001)}},
		{both, []mongolock.AcquireOption{mongolock.Shared(), mongolock.OneOf(2)}},
		{both, []mongolock.AcquireOption{mongolock.OneOf(3), mongolock.OneOf(2)}},
		{"mongolock: Weight(0): must be at least 1", []mongolock.AcquireOption{mongolock.OneOf(3), mongolock.Weight(0)}},
		{"mongolock: Weight(4): there are 3 permits", []mongolock.AcquireOption{mongolock.Weight(4), mongolock.OneOf(3)}},
		{"mongolock: Weight(1): only with OneOf", []mongolock.AcquireOption{mongolock.Weight(1), mongolock.Shared()}},
		{"mongolock: Weight(2): only with OneOf", []mongolock.AcquireOption{mongolock.Weight(2)}},
	} {
		l, err := c.Acquire(t.Context(), "k", x.opts...)
		assert.Nil(t, l)
		assert.EqualError(t, err, x.says)
	}
	release(t, acquire(t, c, "k", mongolock.OneOf(10_000)))
	release(t, acquire(t, c, "k", mongolock.Shared(), mongolock.Shared()))
}

func TestASharedLeaseCannotBeDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		for _, mode := range []mongolock.AcquireOption{mongolock.Shared(), mongolock.OneOf(2)} {
			l := acquire(t, c, "k", mode)
			ticket, err := l.Detach(t.Context())
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			assert.Empty(t, ticket)
			assert.NoError(t, l.Err())
			release(t, l)
		}
	})
}

func TestTheLossOfASharedLeaseDoesNotAffectOtherHolders(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		lost, stays := acquire(t, c, "k", mongolock.Shared(), mongolock.NoRenewal()), acquire(t, c, "k", mongolock.Shared())
		<-lost.Done()
		assert.ErrorIs(t, lost.Err(), mongolock.ErrLost)
		time.Sleep(time.Minute)
		assert.NoError(t, stays.Err())
		assert.ErrorIs(t, lost.Release(), mongolock.ErrLost)
		mustBeHeld(t, b, "k")
		release(t, stays)
		mustBeFree(t, b, "k")
	})
}

// The workers of one process release permits and acquire them again in a loop.
func TestAProcessThatReacquiresPermitsInALoopDoesNotStarveAnother(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		busy, other := newClient(t, b), newClient(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if l, err := busy.Acquire(ctx, "k", mongolock.OneOf(2)); err == nil {
						time.Sleep(5 * time.Millisecond)
						_ = l.Release()
					}
				}
			})
		}
		time.Sleep(time.Second)
		for range 10 {
			start := time.Now()
			l := acquire(t, other, "k", mongolock.OneOf(2))
			tookBetween(t, start, 0, 250*time.Millisecond)
			release(t, l)
		}
	})
}

func TestASharedClaimOfUnknownOutcomeIsCleanedUpWithoutHarmToOtherHolders(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		stays := acquire(t, c, "k", mongolock.Shared())
		b.On(lab.Acquire, lab.LoseReply(errNet))
		_, err := c.TryAcquire(t.Context(), "k", mongolock.Shared())
		assert.ErrorIs(t, err, errNet)
		assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		time.Sleep(time.Second)
		b.On(lab.Acquire, nil)
		status, err := c.Inspect(t.Context(), "k")
		require.NoError(t, err)
		if assert.Len(t, status.Holders, 1) {
			assert.Equal(t, stays.ID(), status.Holders[0].ID)
		}
		release(t, stays)
	})
}

func TestAReaderThatTimesOutBehindAReaderDoesNotGetErrHeld(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		b.On(lab.Acquire, lab.Slow(5*time.Second, 0))
		first := inBackground(t.Context(), c, "k", mongolock.Shared())
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Acquire(ctx, "k", mongolock.Shared())
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, mongolock.ErrHeld)
		release(t, (<-first).lease)
	})
}

func TestARefusalTellsWhetherThisClientIsAmongTheHolders(t *testing.T) {
	for what, shares := range map[string]mongolock.AcquireOption{"readers": mongolock.Shared(), "permits": mongolock.OneOf(3)} {
		for _, test := range []struct {
			own, others bool
			says        string
		}{
			{own: true, says: " is held by this process, "},
			{others: true, says: " is held by "},
			{own: true, others: true, says: " and 1 more, this process among them"},
		} {
			t.Run(fmt.Sprintf("%s, own %v, others' %v", what, test.own, test.others), func(t *testing.T) {
				lab.Test(t, func(t *testing.T, s *lab.Store) {
					c := newClient(t, s)
					if test.others {
						acquire(t, newClient(t, s), "k", shares)
					}
					if test.own {
						acquire(t, c, "k", shares)
					}
					_, try := c.TryAcquire(t.Context(), "k")
					_, wait := c.Acquire(t.Context(), "k", mongolock.MaxWait(time.Second))
					for _, err := range []error{try, wait} {
						held, is := errors.AsType[*mongolock.HeldError](err)
						require.True(t, is, "%v", err)
						assert.Equal(t, test.own, held.Here, "%v", err)
						assert.ErrorContains(t, err, test.says)
						assert.Equal(t, test.own, strings.Contains(err.Error(), "this process"), "%v", err)
					}
				})
			})
		}
	}
}
