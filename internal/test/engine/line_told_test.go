package engine_test

import (
	"context"
	"fmt"
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

// within fails unless the result comes in time; it releases the lease.
func within(t *testing.T, what string, start time.Time, wait <-chan result, most time.Duration) (l *mongolock.Lease) {
	t.Helper()
	r := <-wait
	if assert.NoError(t, r.err, what) {
		took := r.when.Sub(start)
		t.Logf("%s: served after %v", what, took)
		assert.LessOrEqual(t, took, most, "%s", what)
		l = r.lease
	}
	return l
}

// Readers that joined after the grant are not told by a release that was announced beside it.
func TestReadersWhoJoinedAfterTheGrantAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		first, second := lab.New(mem), lab.New(mem)
		first.All(trips(time.Millisecond))
		second.All(trips(time.Millisecond))
		gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
		writer := inBackground(t.Context(), newClient(t, first), "k", mongolock.TTL(time.Hour))
		time.Sleep(time.Second)
		r1 := inBackground(t.Context(), newClient(t, second), "k", mongolock.Shared())
		time.Sleep(time.Second)
		release(t, gate)
		w := <-writer // its grant shows r1 in line
		require.NoError(t, w.err)
		time.Sleep(time.Second)
		var late []<-chan result
		for range 3 {
			late = append(late, inBackground(t.Context(), newClient(t, mem), "k", mongolock.Shared()))
			time.Sleep(time.Second)
		}
		start := time.Now()
		release(t, w.lease)
		within(t, "first reader", start, r1, 100*time.Millisecond)
		for range 3 {
			within(t, "late reader", start, late[0], time.Second)
			late = late[1:]
		}
	})
}

// The same: one that comes after a dead first.
func TestADeadFirstCostsASecondAfterAnAnnouncementBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		first := lab.New(mem)
		first.All(trips(time.Millisecond))
		gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
		holder := inBackground(t.Context(), newClient(t, first), "k", mongolock.TTL(time.Hour))
		time.Sleep(time.Second)
		standAs(t, mem, store.Exclusive, 1, "dead", "dead")
		release(t, gate)
		h := <-holder
		require.NoError(t, h.err)
		time.Sleep(time.Second)
		next := inBackground(t.Context(), newClient(t, mem), "k")
		time.Sleep(time.Second)
		start := time.Now()
		release(t, h.lease)
		within(t, "behind a dead first", start, next, 1200*time.Millisecond)
	})
}

// In a loop, the announcement by the last release's line names one alone: nobody is told that he
// is next.
func TestADeadFirstCostsASecondInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		first := lab.New(mem)
		first.All(trips(time.Millisecond))
		c := newClient(t, first)
		dead, killed := lab.New(mem), newClient(t, lab.New(mem))
		_ = killed
		gate := acquire(t, c, "k", mongolock.TTL(time.Hour))
		rival := newClient(t, dead)
		one := inBackground(t.Context(), rival, "k")
		time.Sleep(time.Second)
		release(t, gate)
		r := <-one
		release(t, r.lease)
		again := acquire(t, c, "k", mongolock.TTL(time.Hour)) // nobody is in line; the last release saw the rival
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		two := inBackground(ctx, rival, "k")
		time.Sleep(100 * time.Millisecond)
		next := inBackground(t.Context(), newClient(t, mem), "k")
		time.Sleep(2 * time.Second)
		dead.All(lab.Hang) // the rival hangs
		start := time.Now()
		release(t, again)
		l := within(t, "behind one that hangs", start, next, 1200*time.Millisecond)
		dead.All(nil)
		if l != nil {
			_ = l.Release()
		}
		cancel()
		<-two
	})
}

// A client whose waiter left, and that has another: it is told by the old place.
func TestAProcessThatJoinedAgainIsTold(t *testing.T) {
	for late := time.Duration(0); late <= 240*time.Millisecond; late += 40 * time.Millisecond {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				first := lab.New(mem)
				gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
				holder := inBackground(t.Context(), newClient(t, first), "k", mongolock.TTL(time.Hour))
				time.Sleep(time.Second)
				rival := newClient(t, mem)
				ctx, cancel := context.WithCancel(t.Context())
				one := inBackground(ctx, rival, "k")
				time.Sleep(time.Second)
				release(t, gate)
				h := <-holder
				require.NoError(t, h.err)
				time.Sleep(time.Second)
				cancel()
				<-one
				time.Sleep(time.Second)
				two := inBackground(t.Context(), rival, "k")
				time.Sleep(time.Second)
				first.All(func(_ context.Context, call *lab.Call) error {
					if call.Op == lab.Release {
						time.Sleep(late)
					}
					_ = call.Do()
					return nil
				})
				start := time.Now()
				release(t, h.lease)
				if l := within(t, "joined again", start, two, time.Second+late); l != nil {
					release(t, l)
				}
			})
		})
	}
}

// A reader that passes a dead writer lets in no other.
func TestReadersBehindADeadFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
		standAs(t, mem, store.Exclusive, 1, "dead", "dead")
		var all []<-chan result
		for range 4 {
			all = append(all, inBackground(t.Context(), newClient(t, mem), "k", mongolock.Shared()))
			time.Sleep(time.Second)
		}
		start := time.Now()
		release(t, gate)
		for _, r := range all {
			within(t, "reader", start, r, 4*time.Second)
		}
	})
}

// MinHold tells the first alone of the new end.
func TestReadersBehindAMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		start := time.Now()
		gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour), mongolock.MinHold(20*time.Second))
		var all []<-chan result
		for range 6 {
			all = append(all, inBackground(t.Context(), newClient(t, mem), "k", mongolock.Shared()))
			time.Sleep(time.Second)
		}
		release(t, gate)
		for _, r := range all {
			within(t, "reader", start, r, 24*time.Second)
		}
	})
}

// A permit that was offered to one that is about to take another.
func TestPermitsThatAreFreedTogetherAreTakenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		var held []*mongolock.Lease
		for range 4 {
			s := lab.New(mem)
			s.All(trips(time.Millisecond))
			held = append(held, acquire(t, newClient(t, s), "k", mongolock.OneOf(4), mongolock.TTL(time.Hour)))
		}
		var all []<-chan result
		for range 4 {
			s := lab.New(mem)
			s.All(trips(time.Millisecond))
			all = append(all, inBackground(t.Context(), newClient(t, s), "k", mongolock.OneOf(4), mongolock.TTL(time.Hour)))
			time.Sleep(time.Second)
		}
		keep := held[0]
		start := time.Now()
		for _, l := range held[1:] {
			go func() { _ = l.Release() }()
		}
		for _, r := range all[:3] {
			within(t, "permit", start, r, time.Second)
		}
		release(t, keep)
		within(t, "permit", start, all[3], time.Minute)
	})
}

// The last live reader leaves, and one that is dead is still in the record.
func TestALastReaderBesideADeadOneTellsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, err := mem.Acquire(t.Context(), store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Shared}, TTL: 10 * time.Second, Owner: "dead"})
		require.NoError(t, err)
		l := acquire(t, newClient(t, lab.New(mem)), "k", mongolock.Shared(), mongolock.TTL(time.Hour))
		time.Sleep(15 * time.Second)
		w := inBackground(t.Context(), newClient(t, lab.New(mem)), "k")
		time.Sleep(time.Second)
		start := time.Now()
		release(t, l)
		within(t, "writer", start, w, time.Second)
	})
}

// A waiter who comes to stand first, because the one before gave up, may have looked last under another
// holder. He must not learn half a minute later that this one has died.
func TestAWaiterThatGivesUpIsInNobodysWayThoughTheHolderDied(t *testing.T) {
	for _, ttl := range []time.Duration{5 * time.Second, 28 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New()
			gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
			place := standAs(t, mem, store.Exclusive, 1, "waits", "dead")
			time.Sleep(time.Second)
			gaveUp := inBackground(t.Context(), newClient(t, mem), "k", mongolock.MaxWait(3*time.Second))
			time.Sleep(time.Second)
			next := inBackground(t.Context(), newClient(t, mem), "k")
			time.Sleep(time.Second)
			release(t, gate)
			start := time.Now()
			diesHolding(t, mem, place, ttl)
			assert.ErrorIs(t, (<-gaveUp).err, mongolock.ErrHeld)
			require.Less(t, time.Since(start), 4*time.Second, "the holder's time is over: the test shows nothing")
			release(t, within(t, "the next", start, next, ttl+100*time.Millisecond))
		})
	}
}

// diesHolding takes the key for one who stands first in line, and is not heard of again.
func diesHolding(t *testing.T, mem *memstore.Store, place store.Place, ttl time.Duration) {
	t.Helper()
	_, err := mem.Acquire(t.Context(), store.Claim{
		Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: ttl, Place: place, Offered: true,
	})
	require.NoError(t, err)
}

// Who looks by himself before the holder may be over need not be told of it: with each of a crowd that
// gives up that would be a notice and a claim more.
func TestACrowdThatGivesUpTellsNobodyOfAHolderThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
		place := standAs(t, mem, store.Exclusive, 1, "waits", "dead")
		const n = 20
		var sent atomic.Int64
		var waits []<-chan result
		for i := range n {
			s := lab.New(mem)
			s.Each = func(c *lab.Call) {
				if c.Op == lab.Acquire || c.Op == lab.Notify {
					sent.Add(1)
				}
			}
			c := newClient(t, s)
			waits = append(waits, inBackground(t.Context(), c, "k", mongolock.MaxWait(3*time.Second+time.Duration(i)*10*time.Millisecond)))
			synctest.Wait()
		}
		time.Sleep(time.Second)
		release(t, gate)
		diesHolding(t, mem, place, 30*time.Second)
		before := sent.Load()
		for _, w := range waits {
			assert.ErrorIs(t, (<-w).err, mongolock.ErrHeld)
		}
		synctest.Wait()
		assert.Less(t, sent.Load()-before, int64(5), "claims and notices of %d that gave up", n)
	})
}

// One that was told before the release, and asks again and again, reads the key meanwhile: the
// read puts its next claim off to when its place has to be kept. No lost notice, no fault.
func TestAReadBetweenAnEarlyNoticeAndTheRelease(t *testing.T) {
	for before := 40 * time.Millisecond; before < 250*time.Millisecond; before += 40 * time.Millisecond {
		t.Run(before.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				first, rival := lab.New(mem), lab.New(mem)
				c := newClient(t, first)
				gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
				holder := inBackground(t.Context(), c, "k", mongolock.TTL(time.Hour))
				time.Sleep(time.Second)
				w := inBackground(t.Context(), newClient(t, rival), "k", mongolock.TTL(time.Hour))
				time.Sleep(time.Second)
				release(t, gate)
				h := <-holder // its grant shows the rival in line
				require.NoError(t, h.err)
				time.Sleep(5 * time.Second)
				first.All(func(_ context.Context, call *lab.Call) error {
					if call.Op == lab.Release {
						time.Sleep(240 * time.Millisecond) // a slow network
					}
					_ = call.Do()
					return nil
				})
				require.NoError(t, mem.Notify(t.Context(), store.Notice{})) // as when the feed is opened again
				time.Sleep(before)
				start := time.Now()
				release(t, h.lease)
				if l := within(t, "told early", start, w, time.Second); l != nil {
					release(t, l)
				}
				t.Log(rival.Counts())
			})
		})
	}
}

// Who is granted a permit tells the first behind it that allows more, also if a dead waiter stands between.
func TestADeadWaiterHidesNoneBehindItThatAllowsMorePermits(t *testing.T) {
	for mode, limit := range map[store.Mode]int{store.Permits: 2, store.Exclusive: 1} {
		t.Run(string(mode), func(t *testing.T) {
			lab.Test(t, func(t *testing.T, s *lab.Store) {
				holder := newClient(t, s)
				one, two := acquire(t, holder, "k", mongolock.OneOf(2)), acquire(t, holder, "k", mongolock.OneOf(2))
				waits := []<-chan result{inBackground(t.Context(), newClient(t, s), "k", mongolock.OneOf(2))}
				time.Sleep(time.Second)
				_, err := s.Acquire(t.Context(), store.Claim{
					Ref: store.Ref{Key: "k", ID: "dead", Mode: mode}, Limit: limit, TTL: time.Minute, Place: store.NewPlace(mode, limit, 1, "dead"),
				})
				require.ErrorIs(t, err, mongolock.ErrHeld)
				for range 2 {
					waits = append(waits, inBackground(t.Context(), newClient(t, s), "k", mongolock.OneOf(4)))
					time.Sleep(time.Second)
				}
				time.Sleep(2 * store.PlaceFor)
				freed := time.Now()
				release(t, one)
				for i, wait := range waits {
					r := <-wait
					require.NoError(t, r.err)
					assert.Zero(t, r.when.Sub(freed), "until waiter %d has its permit", i)
					defer release(t, r.lease)
				}
				release(t, two)
			})
		})
	}
}

// Three give up while MinHold keeps the key: the fourth, alone in line by then, has it when that is over.
func TestThoseThatGaveUpUnderMinHoldAreInNobodysWay(t *testing.T) {
	for name, opts := range map[string][]mongolock.ClientOption{"they listen": nil, "they poll": {mongolock.WithoutFeed()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				const minHold = 20 * time.Second
				start := time.Now()
				held := acquire(t, newClient(t, mem), "k", mongolock.MinHold(minHold))
				for range 3 {
					inBackground(t.Context(), newClient(t, mem, opts...), "k", mongolock.MaxWait(minHold-5*time.Second-time.Since(start)))
					time.Sleep(time.Second)
				}
				last := inBackground(t.Context(), newClient(t, mem), "k")
				time.Sleep(time.Second)
				release(t, held)
				release(t, within(t, "the fourth", start.Add(minHold), last, 500*time.Millisecond))
			})
		})
	}
}

// The same behind a holder of which nobody tells that it is over. The first in line comes before one that polls.
func TestThoseThatGaveUpBehindADetachedHolderAreInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		const ttl = 20 * time.Second
		start := time.Now()
		_, err := acquire(t, newClient(t, mem), "k", mongolock.TTL(ttl)).Detach(t.Context())
		require.NoError(t, err)
		for range 3 {
			inBackground(t.Context(), newClient(t, mem), "k", mongolock.MaxWait(ttl-5*time.Second-time.Since(start)))
			time.Sleep(time.Second)
		}
		first := inBackground(t.Context(), newClient(t, mem), "k")
		time.Sleep(time.Second)
		second := inBackground(t.Context(), newClient(t, mem, mongolock.WithoutFeed()), "k")
		release(t, within(t, "the fourth", start.Add(ttl), first, 500*time.Millisecond))
		release(t, within(t, "the fifth, which polls", start.Add(ttl), second, 2*time.Second))
	})
}

// Of forty that wait all but the last give up, one now and one then, some of them pollers.
func TestThirtyNineThatGiveUpAreInTheLastOnesWayForAGraceAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		const minHold, n = 20 * time.Second, 40
		start := time.Now()
		held := acquire(t, newClient(t, mem), "k", mongolock.MinHold(minHold))
		for i := range n - 1 {
			var opts []mongolock.ClientOption
			if i%4 == 3 {
				opts = append(opts, mongolock.WithoutFeed())
			}
			patience := time.Duration(1+(i*7919)%20_000) * time.Millisecond // in no order, until MinHold is over
			inBackground(t.Context(), newClient(t, mem, opts...), "k", mongolock.MaxWait(patience))
			time.Sleep(10 * time.Millisecond)
		}
		last := inBackground(t.Context(), newClient(t, mem), "k")
		time.Sleep(time.Second)
		release(t, held)
		release(t, within(t, "the last", start.Add(minHold), last, time.Second+500*time.Millisecond))
	})
}

// dies stands in line for the key as processes that hear notices, and are dead.
func dies(t *testing.T, mem *memstore.Store, n int) {
	t.Helper()
	for i := range n {
		standAs(t, mem, store.Exclusive, 1, fmt.Sprint("dead", i), "dead")
	}
}

// The key of a long lease is free soon after its release: the look whether somebody came waits for what is left of MinHold.
func TestThoseBehindTheDeadComeSoonAfterMinHoldIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		const minHold = 30 * time.Second
		start := time.Now()
		held := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour), mongolock.MinHold(minHold))
		time.Sleep(22 * time.Second)
		dies(t, mem, 3)
		next := inBackground(t.Context(), newClient(t, mem), "k")
		time.Sleep(3 * time.Second)
		release(t, held)
		release(t, within(t, "the next", start.Add(minHold), next, 1500*time.Millisecond))
	})
}

// The first in line lives, gives up after the release, and its process ends: the rest hear of the key all the same.
func TestThoseBehindTheDeadComeThoughTheFirstGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		held := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
		first := standAs(t, mem, store.Exclusive, 1, "first", "first")
		dies(t, mem, 2)
		time.Sleep(time.Second)
		next := inBackground(t.Context(), newClient(t, mem), "k")
		time.Sleep(time.Second)
		release(t, held)
		start := time.Now()
		time.Sleep(400 * time.Millisecond)
		_, err := mem.Leave(t.Context(), "k", first)
		require.NoError(t, err)
		release(t, within(t, "the next", start, next, 1500*time.Millisecond))
	})
}

// Whoever knows already that the key is free does not begin to count again when a process goes and tells it once more.
func TestACloseDoesNotPutOffThoseBehindTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		held := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
		dies(t, mem, 2)
		next := inBackground(t.Context(), newClient(t, mem), "k")
		time.Sleep(time.Second)
		last := newClient(t, mem)
		inBackground(t.Context(), last, "k")
		time.Sleep(time.Second)
		release(t, held)
		start := time.Now()
		time.Sleep(900 * time.Millisecond)
		require.NoError(t, last.Close())
		release(t, within(t, "the next", start, next, 1500*time.Millisecond))
	})
}

// What Close says of keys that are free it says with no mutex locked, behind which the leaving of a line would wait.
func TestCloseTellsTheLinesOfSeveralKeysAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := lab.New(memstore.New())
		b.On(lab.Notify, lab.Slow(50*time.Millisecond, 0))
		mem := b.Mem
		closing, err := mongolock.NewWithStore(b)
		require.NoError(t, err)
		var next []<-chan result
		for _, key := range []string{"a", "b", "c"} {
			held := acquire(t, newClient(t, mem), key)
			stand := func(id string) {
				c := store.Claim{Ref: store.Ref{Key: key, ID: id, Mode: store.Exclusive}, Limit: 1, TTL: time.Minute, Place: store.NewPlace(store.Exclusive, 1, 1, id)}
				_, err := mem.Acquire(t.Context(), c)
				require.ErrorIs(t, err, store.ErrHeld)
			}
			stand("dead")
			inBackground(t.Context(), closing, key)
			synctest.Wait()
			stand("dead too")
			next = append(next, inBackground(t.Context(), newClient(t, mem), key))
			synctest.Wait()
			release(t, held)
		}
		start := time.Now()
		require.NoError(t, closing.Close())
		assert.Less(t, time.Since(start), 500*time.Millisecond)
		for _, n := range next {
			release(t, within(t, "the next", start, n, 1500*time.Millisecond))
		}
	})
}
