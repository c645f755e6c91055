package engine_test

import (
	"context"
	"errors"
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

// crowd lets n processes acquire and release a key in a loop, each on a connection of its own on
// which a call takes 2 to 6 ms. It returns the grants, the calls of a grant, and how evenly
// the grants are spread (Jain's index).
func crowd(t *testing.T, n int) (grants int64, calls, even float64) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		var stores []*lab.Store
		var each []*atomic.Int64
		var stops []func()
		for range n {
			s := newSlowStore(mem, time.Millisecond)
			one, stop := loop(t, newClient(t, s), 1, 0)
			stores, each, stops = append(stores, s), append(each, one), append(stops, stop)
		}
		time.Sleep(5 * time.Second) // virtual: they know that others wait
		for i, s := range stores {
			s.Reset()
			each[i].Store(0)
		}
		time.Sleep(20 * time.Second)
		var sum, squares, sent float64
		for i, s := range stores {
			sent += float64(s.Count())
			mine := float64(each[i].Load())
			sum, squares = sum+mine, squares+mine*mine
		}
		grants, calls, even = int64(sum), sent/sum, sum*sum/(float64(n)*squares)
		var all sync.WaitGroup // each stop waits for its own process, which may wait for another
		for _, stop := range stops {
			all.Go(stop)
		}
		all.Wait()
	})
	return grants, calls, even
}

// A grant takes four calls, however many wait: to join the line, to take the key when it is
// offered, to release it, and a notice. On MongoDB two more, for the notices that are heard.
func TestACrowdCostsAGrantWhatOneWaiterCosts(t *testing.T) {
	two, _, _ := crowd(t, 2)
	for _, n := range []int{2, 8, 32} {
		grants, calls, even := crowd(t, n)
		t.Logf("%d processes: %d grants, %.2f calls a grant, Jain's index %.4f", n, grants, calls, even)
		assert.LessOrEqual(t, calls, 4.6, "calls a grant, of %d", n)
		assert.GreaterOrEqual(t, even, 0.99, "Jain's index, of %d", n)
		assert.GreaterOrEqual(t, float64(grants), 0.9*float64(two), "grants, of %d", n)
	}
}

func TestProcessesAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	for _, feed := range []bool{true, false} {
		t.Run(fmt.Sprint("feed ", feed), func(t *testing.T) {
			lab.Test(t, func(t *testing.T, s *lab.Store) {
				var opts []mongolock.ClientOption
				if !feed {
					opts = append(opts, mongolock.WithoutFeed())
				}
				l := acquire(t, newClient(t, s), "k")
				served := make(chan int, 10)
				for i := range 10 {
					wait := inBackground(t.Context(), newClient(t, s, opts...), "k")
					time.Sleep(time.Millisecond)
					go func() {
						r := <-wait
						if assert.NoError(t, r.err) {
							served <- i
							release(t, r.lease)
						}
					}()
				}
				release(t, l)
				for i := range 10 {
					assert.Equal(t, i, <-served)
				}
			})
		})
	}
}

// stand puts n places of processes that died into the line of a key that is held.
func stand(t *testing.T, s *memstore.Store, m store.Mode, n int) {
	t.Helper()
	for i := range n {
		claim := store.Claim{Ref: store.Ref{Key: "k", ID: fmt.Sprint("dead", i), Mode: m}, TTL: time.Minute, Owner: "dead"}
		if m == store.Exclusive {
			claim.Limit = 1
		}
		claim.Place = store.NewPlace(m, claim.Limit, 1, "dead")
		_, err := s.Acquire(t.Context(), claim)
		require.ErrorIs(t, err, store.ErrHeld)
	}
}

func TestOneThatDoesNotComeIsPassedAfterASecond(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k")
		stand(t, b.Mem, store.Exclusive, 1)
		wait := inBackground(t.Context(), newClient(t, b), "k")
		time.Sleep(10 * time.Second)
		start := time.Now()
		release(t, l)
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, start, time.Second, 1100*time.Millisecond)
		release(t, r.lease)
		mustBeFree(t, b, "k")
	})
}

// The page of guarantees promises: no longer than until their places are stale.
func TestACrowdThatWasKilledKeepsTheNextOutForNinetySeconds(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k")
		stand(t, b.Mem, store.Exclusive, store.LineMost)
		start := time.Now()
		wait := inBackground(t.Context(), newClient(t, b), "k")
		time.Sleep(time.Second)
		release(t, l)
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, start, time.Second, store.PlaceFor+5*time.Second)
		release(t, r.lease)
	})
}

// Its process had the key while the line was full, so it leaves the next turns to others.
func TestACallerThatGivesUpOutsideAFullLineKnowsThatTheKeyIsHeld(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		stand(t, b.Mem, store.Exclusive, store.LineMost)
		release(t, l)
		_, err := c.Acquire(t.Context(), "k", mongolock.MaxWait(time.Second))
		assert.ErrorIs(t, err, mongolock.ErrHeld)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Acquire(ctx, "k")
		assert.ErrorIs(t, err, mongolock.ErrHeld)
	})
}

func TestATryDoesNotOvertakeThoseInLine(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		stand(t, b.Mem, store.Exclusive, 2)
		release(t, l)
		mustBeFree(t, b, "k")
		_, err := c.TryAcquire(t.Context(), "k")
		var held *mongolock.HeldError
		require.ErrorAs(t, err, &held)
		assert.Equal(t, 2, held.Ahead())
		assert.ErrorContains(t, err, "2 waiters come first")
		_, err = c.TryAcquire(t.Context(), "k", mongolock.Shared())
		assert.ErrorIs(t, err, mongolock.ErrHeld)
		time.Sleep(store.PlaceFor)
		release(t, acquire(t, c, "k"))
	})
}

func TestAWaiterThatGivesUpIsInTheWayOfNobody(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		holder := newClient(t, b)
		l := acquire(t, holder, "k")
		_, err := newClient(t, b).Acquire(t.Context(), "k", mongolock.MaxWait(time.Second))
		var held *mongolock.HeldError
		require.ErrorAs(t, err, &held)
		assert.Zero(t, held.Ahead())
		closed := newClient(t, b)
		first := inBackground(t.Context(), closed, "k")
		synctest.Wait()
		second := inBackground(t.Context(), newClient(t, b), "k")
		synctest.Wait()
		_, err = newClient(t, b).Acquire(t.Context(), "k", mongolock.MaxWait(time.Second))
		require.ErrorAs(t, err, &held)
		assert.Equal(t, 2, held.Ahead())
		require.NoError(t, closed.Close())
		assert.Error(t, (<-first).err)
		synctest.Wait()
		status, err := holder.Inspect(t.Context(), "k")
		require.NoError(t, err)
		assert.Len(t, status.Line, 1, "the one who still waits")
		start := time.Now()
		release(t, l)
		r := <-second
		require.NoError(t, r.err)
		tookBetween(t, start, 0, 10*time.Millisecond)
		release(t, r.lease)
		for left := range b.Mem.List(t.Context(), "") {
			assert.Fail(t, "a record is left", "%v", left)
		}
	})
}

// A waiter whose notices are lost looks now and then.
func TestAWaiterThatIsToldNothingIsServedWithinHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivalry(t)
		l := acquire(t, r.one, "k", mongolock.TTL(time.Hour))
		wait := inBackground(t.Context(), r.two, "k")
		time.Sleep(5 * time.Second)
		r.far.deaf.Store(true)
		start := time.Now()
		release(t, l)
		got := <-wait
		require.NoError(t, got.err)
		tookBetween(t, start, time.Second, 30*time.Second)
		release(t, got.lease)
	})
}

// The reply to a release was lost, and with it who waits: the client asks, and tells them.
func TestAReleaseWhoseReplyIsLostTellsTheNext(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k", mongolock.TTL(time.Hour))
		wait := inBackground(t.Context(), newClient(t, b.Mem), "k")
		time.Sleep(5 * time.Second)
		b.On(lab.Release, lab.LoseReply(errNet))
		start := time.Now()
		assert.Error(t, l.Release())
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, start, 0, time.Second)
		b.On(lab.Release, nil)
		release(t, r.lease)
	})
}

// One that was passed joins the line again, at its end.
func TestASlowProcessLosesItsPlaceAndNotItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		slow := lab.New(mem)
		l := acquire(t, newClient(t, mem), "k")
		late := inBackground(t.Context(), newClient(t, slow), "k")
		time.Sleep(time.Second)
		next := inBackground(t.Context(), newClient(t, mem), "k")
		time.Sleep(time.Second)
		slow.On(lab.Acquire, lab.Slow(3*time.Second, 0))
		release(t, l)
		r := <-next
		require.NoError(t, r.err)
		time.Sleep(10 * time.Second)
		start := time.Now()
		release(t, r.lease)
		r = <-late
		require.NoError(t, r.err)
		tookBetween(t, start, 0, 4*time.Second)
		release(t, r.lease)
	})
}

// Whoever waits behind a holder that releases with MinHold learns of the new end.
func TestThoseInLineLearnThatAHolderLeavesSooner(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		start := time.Now()
		l := acquire(t, newClient(t, s), "k", mongolock.MinHold(20*time.Second), mongolock.TTL(time.Hour))
		wait := inBackground(t.Context(), newClient(t, s), "k")
		time.Sleep(5 * time.Second)
		release(t, l)
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, start, 20*time.Second, 20*time.Second+100*time.Millisecond)
		release(t, r.lease)
	})
}

// The line survives what a claim of unknown outcome leaves.
func TestAWaiterWhoseClaimIsUnknownIsServed(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied ", applied), func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				l := acquire(t, newClient(t, b.Mem), "k")
				wait := inBackground(t.Context(), newClient(t, b), "k")
				time.Sleep(time.Second)
				behind := inBackground(t.Context(), newClient(t, b.Mem), "k")
				time.Sleep(time.Second)
				once := true
				b.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
					if !once {
						return call.Do()
					}
					once = false
					if applied {
						_ = call.Do()
					}
					return errors.New("reply lost")
				})
				start := time.Now()
				release(t, l)
				for range 2 { // it keeps its place, if the claim was not applied
					var r result
					select {
					case r = <-wait:
					case r = <-behind:
					}
					require.NoError(t, r.err)
					tookBetween(t, start, 0, 4*time.Second)
					release(t, r.lease)
				}
			})
		})
	}
}

// The claim of one that gave up joined the line, and its reply was lost: the place is given up, too.
func TestAPlaceIsGivenUpWhoseClaimWasNotAnswered(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b.Mem), "k")
		b.On(lab.Acquire, func(ctx context.Context, call *lab.Call) error {
			_ = call.Do()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := newClient(t, b).Acquire(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		status, err := b.Mem.Look(t.Context(), []string{"k"})
		require.NoError(t, err)
		require.Len(t, status[0].Line, 1, "the test shows nothing")
		time.Sleep(2 * time.Second)
		status, err = b.Mem.Look(t.Context(), []string{"k"})
		require.NoError(t, err)
		assert.Empty(t, status[0].Line)
		release(t, l)
	})
}

// A holder that releases with MinHold tells the first in line when it ends. Those who share the key
// with that one learn it from it.
func TestSharersWhomNobodyToldComeTogether(t *testing.T) {
	for _, mode := range []mongolock.AcquireOption{mongolock.Shared(), mongolock.OneOf(3)} {
		lab.Test(t, func(t *testing.T, s *lab.Store) {
			start := time.Now()
			l := acquire(t, newClient(t, s), "k", mongolock.MinHold(20*time.Second), mongolock.TTL(time.Hour))
			var waits []<-chan result
			for range 3 {
				waits = append(waits, inBackground(t.Context(), newClient(t, s), "k", mode))
				time.Sleep(time.Second)
			}
			release(t, l)
			for _, wait := range waits {
				r := <-wait
				require.NoError(t, r.err)
				tookBetween(t, start, 20*time.Second, 20*time.Second+200*time.Millisecond)
				defer release(t, r.lease)
			}
		})
	}
}

// A release told nobody. One that polls sees it, and brings in the sharers behind it.
func TestASharerThatPollsBringsInThoseBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		holder := store.Claim{Ref: store.Ref{Key: "k", ID: "writer", Mode: store.Exclusive}, Limit: 1, TTL: time.Hour, Owner: "o"}
		_, err := s.Acquire(t.Context(), holder)
		require.NoError(t, err)
		first := inBackground(t.Context(), newClient(t, s, mongolock.WithoutFeed()), "k", mongolock.Shared())
		time.Sleep(time.Second)
		second := inBackground(t.Context(), newClient(t, s), "k", mongolock.Shared())
		time.Sleep(time.Minute)
		_, _ = s.Release(t.Context(), store.ReleaseRequest{Ref: holder.Ref})
		one, two := <-first, <-second
		require.NoError(t, errors.Join(one.err, two.err))
		assert.LessOrEqual(t, two.when.Sub(one.when), 100*time.Millisecond)
		release(t, one.lease)
		release(t, two.lease)
	})
}

// A permit runs out just after another was returned. Only the first in line was told of that; the one
// behind it has died, so the third learns of the other permit from the first.
func TestAPermitThatRunsOutDuringAHandoffIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		start, end := time.Now(), 10*time.Second
		permit := func(id string, ttl time.Duration) store.Claim {
			return store.Claim{Ref: store.Ref{Key: "k", ID: id, Mode: store.Permits}, Limit: 2, TTL: ttl, Owner: id}
		}
		_, err := mem.Acquire(t.Context(), permit("runs out", end))
		require.NoError(t, err)
		holder := acquire(t, newClient(t, mem), "k", mongolock.OneOf(2), mongolock.TTL(time.Hour))
		s := lab.New(mem)
		first := inBackground(t.Context(), newClient(t, s), "k", mongolock.OneOf(2))
		time.Sleep(time.Second)
		s.All(trips(20 * time.Millisecond))
		died := permit("died", time.Minute)
		died.Place = store.NewPlace(store.Permits, 2, 1, "dead")
		_, err = mem.Acquire(t.Context(), died)
		require.ErrorIs(t, err, store.ErrHeld)
		third := inBackground(t.Context(), newClient(t, mem), "k", mongolock.OneOf(2))
		time.Sleep(time.Until(start.Add(end - 5*time.Millisecond)))
		release(t, holder)
		one, three := <-first, <-third
		require.NoError(t, errors.Join(one.err, three.err))
		assert.LessOrEqual(t, three.when.Sub(start.Add(end)), 1500*time.Millisecond, "from the permit's end")
		release(t, one.lease)
		release(t, three.lease)
	})
}

func TestAPermitThatIsReturnedIsNotOfferedToAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		told := lab.New(mem)
		c := newClient(t, told)
		one, two := acquire(t, c, "k", mongolock.OneOf(2)), acquire(t, c, "k", mongolock.OneOf(2))
		wait := inBackground(t.Context(), newClient(t, mem), "k")
		time.Sleep(time.Second)
		release(t, one)
		time.Sleep(time.Second)
		assert.Zero(t, told.Count(lab.Notify))
		start := time.Now()
		release(t, two)
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, start, 0, 10*time.Millisecond)
		release(t, r.lease)
	})
}
