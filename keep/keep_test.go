package keep_test

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
	"github.com/mongolock/mongolock/keep"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

const idle = 10 * time.Second

var errCut = errors.New("the link is cut")

// A fixture is two processes at one store, of which the first keeps the key.
type fixture struct {
	*testing.T
	link          *lab.Store
	client, rival *mongolock.Client
	key           *keep.Key
}

func inBubble(t *testing.T, run func(f *fixture), opts ...mongolock.AcquireOption) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, link: lab.New(memstore.New())}
		connect := func(s store.Store) *mongolock.Client {
			c := lab.Client(t, s)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			return c
		}
		f.client, f.rival = connect(f.link), connect(f.link.Mem)
		key, err := keep.New(f.client, "k", idle, opts...)
		require.NoError(t, err)
		f.key = key
		t.Cleanup(func() { assert.NoError(t, key.Close()) })
		run(f)
	})
}

// use uses the key for a while, and returns the token.
func (f *fixture) use(long time.Duration) (token int64) {
	f.Helper()
	require.NoError(f, f.key.Do(f.Context(), func(ctx context.Context, l *mongolock.Lease) error {
		token = l.Token()
		return pause(ctx, long)
	}))
	return token
}

// pause is work of so long, unless ctx ends.
func pause(ctx context.Context, long time.Duration) error {
	select {
	case <-time.After(long):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fixture) background(run func()) *sync.WaitGroup {
	var done sync.WaitGroup
	done.Go(run)
	synctest.Wait()
	return &done
}

func (f *fixture) isHeld() bool {
	s, err := f.rival.Inspect(f.Context(), "k")
	require.NoError(f, err)
	return len(s.Holders) > 0
}

func TestTheNextUseCostsNothingAndHasTheSameLease(t *testing.T) {
	inBubble(t, func(f *fixture) {
		first := f.use(0)
		before := f.link.Count(lab.Acquire, lab.Renew)
		for range 1000 {
			assert.Equal(t, first, f.use(0))
		}
		assert.Equal(t, before, f.link.Count(lab.Acquire, lab.Renew), "calls of the store")
		assert.True(t, f.isHeld())
	})
}

func TestUsesComeOneAtATimeInTheOrderInWhichTheyCame(t *testing.T) {
	inBubble(t, func(f *fixture) {
		assert.Empty(t, usesAtATime(f))
	})
}

// usesAtATime has twenty callers use the key, and describes what was wrong.
func usesAtATime(f *fixture) (violation string) {
	var all sync.WaitGroup
	var order []int
	var inside atomic.Int32
	for i := range 20 {
		all.Go(func() {
			_ = f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error {
				if n := inside.Add(1); n > 1 {
					violation = fmt.Sprint(n, " uses at a time")
				} else {
					order = append(order, i)
				}
				defer inside.Add(-1)
				return pause(ctx, time.Second)
			})
		})
		synctest.Wait() // so that it came before the next
	}
	all.Wait()
	for i, n := range order {
		if i != n && violation == "" {
			violation = fmt.Sprint("served in the order ", order)
		}
	}
	return violation
}

func TestTheEndOfACallersContextEndsItsWaitAlone(t *testing.T) {
	inBubble(t, func(f *fixture) {
		long := f.background(func() { f.use(3 * time.Second) })
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := f.key.Do(ctx, func(context.Context, *mongolock.Lease) error { return errors.New("it was called") })
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))
		long.Wait()
		f.use(0)

		ended, end := context.WithCancel(f.Context())
		end()
		assert.ErrorIs(t, f.key.Do(ended, func(context.Context, *mongolock.Lease) error { return nil }), context.Canceled)
		f.use(0)
	})
}

func TestAWaiterElsewhereIsServedAtOnceByAnIdleKey(t *testing.T) {
	inBubble(t, func(f *fixture) {
		first := f.use(0)
		began := time.Now()
		l, err := f.rival.Acquire(f.Context(), "k")
		require.NoError(t, err)
		assert.Less(t, time.Since(began), 100*time.Millisecond)
		assert.Greater(t, l.Token(), first)
		require.NoError(t, l.Release())
		assert.Greater(t, f.use(0), l.Token(), "it is another lease")
	})
}

// The use under way ends first; those that wait here come after the other process, and then again.
func TestAWaiterElsewhereComesBeforeTheUsesThatWaitHere(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var mu sync.Mutex
		var order []string
		note := func(who string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, who)
		}
		var all sync.WaitGroup
		here := func() {
			all.Go(func() {
				assert.NoError(t, f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error {
					note("here")
					return pause(ctx, time.Second)
				}))
			})
			synctest.Wait()
		}
		began := time.Now()
		here()
		here()
		here()
		all.Go(func() {
			assert.NoError(t, mongolock.Do(f.Context(), f.rival, "k", func(ctx context.Context, _ *mongolock.Lease) error {
				assert.InDelta(t, time.Second, time.Since(began), float64(100*time.Millisecond), "a use and a handoff")
				note("there")
				return pause(ctx, time.Second)
			}))
		})
		all.Wait()
		assert.Equal(t, []string{"here", "there", "here", "here"}, order)
	})
}

// Neither starves, however busy each is.
func TestTwoProcessesThatKeepOneKeyTakeTurns(t *testing.T) {
	inBubble(t, func(f *fixture) {
		other, err := keep.New(f.rival, "k", idle)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		var inside, violations atomic.Int32
		uses := make([]int, 2)
		for i, k := range []*keep.Key{f.key, other} {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = k.Do(ctx, func(ctx context.Context, _ *mongolock.Lease) error {
						if inside.Add(1) > 1 {
							violations.Add(1)
						}
						defer inside.Add(-1)
						uses[i]++
						return pause(ctx, 100*time.Millisecond)
					})
				}
			})
		}
		all.Wait()
		t.Log("uses: ", uses)
		assert.Zero(t, violations.Load())
		assert.InDelta(t, uses[0], uses[1], 20)
		assert.Greater(t, uses[0]+uses[1], 400)
		require.NoError(t, other.Close())
	})
}

// A client without a feed hears of nobody, and renewals in bulk show no line.
func TestAKeyThatIsInUseAgainAndAgainIsGivenUpInTheEndThoughNobodyWasHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		deaf := lab.Client(t, unheard{s}, mongolock.WithoutFeed())
		rival := lab.Client(t, s)
		key, err := keep.New(deaf, "k", idle)
		require.NoError(t, err)
		stop := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					assert.NoError(t, key.Do(t.Context(), func(ctx context.Context, _ *mongolock.Lease) error { return pause(ctx, time.Second) }))
				}
			}
		})
		synctest.Wait()
		began := time.Now()
		l, err := rival.Acquire(t.Context(), "k")
		require.NoError(t, err)
		assert.InDelta(t, time.Minute, time.Since(began), float64(2*time.Second))
		close(stop)
		require.NoError(t, l.Release())
		all.Wait()
		require.NoError(t, key.Close())
		require.NoError(t, deaf.Close())
		require.NoError(t, rival.Close())
	})
}

// unheard is a store whose renewals do not show who waits.
type unheard struct{ *memstore.Store }

func (u unheard) Renew(ctx context.Context, all []store.Renewal) []store.Renewed {
	answers := u.Store.Renew(ctx, all)
	for i := range answers {
		answers[i].Line = nil
	}
	return answers
}

func TestAKeyIsGivenUpAfterItsTimeWithoutAUse(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.use(0)
		for range 5 {
			time.Sleep(idle - time.Second)
			f.use(0)
		}
		time.Sleep(idle - time.Millisecond)
		assert.True(t, f.isHeld())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		assert.False(t, f.isHeld())
		f.use(2 * idle) // a long use is no time without one
		assert.True(t, f.isHeld())
	})
}

func TestALeaseThatIsLostEndsTheContextOfTheUseAndTheNextUseHasAnother(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var first int64
		err := f.key.Do(f.Context(), func(ctx context.Context, l *mongolock.Lease) error {
			first = l.Token()
			_, err := f.rival.Break(f.Context(), "k", "why not", 0)
			require.NoError(t, err)
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrLost)
			return nil
		})
		assert.ErrorIs(t, err, mongolock.ErrLost)
		assert.Greater(t, f.use(0), first)
	})
}

func TestALeaseThatIsLostBetweenTwoUsesIsNotUsedAgain(t *testing.T) {
	inBubble(t, func(f *fixture) {
		first := f.use(0)
		_, err := f.rival.Break(f.Context(), "k", "why not", 0)
		require.NoError(t, err)
		time.Sleep(idle - time.Second) // it may be noticed by now, or not
		assert.Greater(t, f.use(0), first)
	}, mongolock.TTL(time.Second))
}

func TestAnOutageIsToldToTheUsesOfThatTimeAndOver(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.link.CutOff(errCut)
		err := f.key.Do(f.Context(), func(context.Context, *mongolock.Lease) error { return nil })
		assert.ErrorIs(t, err, errCut)
		f.link.CutOff(nil)
		first := f.use(0)
		f.link.CutOff(errCut)
		err = f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error { return pause(ctx, time.Hour) })
		assert.ErrorIs(t, err, mongolock.ErrLost)
		f.link.CutOff(nil)
		assert.Greater(t, f.use(0), first)
	}, mongolock.TTL(3*time.Second))
}

func TestTheContextOfAUseEndsWithIt(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var late context.Context
		require.NoError(t, f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error { late = ctx; return nil }))
		assert.ErrorIs(t, late.Err(), context.Canceled)
		assert.NoError(t, f.key.Do(context.WithoutCancel(late), func(context.Context, *mongolock.Lease) error { return nil }), "that use is over")
	})
}

func TestAUseWithinAUseIsRefusedAtOnce(t *testing.T) {
	inBubble(t, func(f *fixture) {
		require.NoError(t, f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error {
			assert.ErrorIs(t, f.key.Do(ctx, func(context.Context, *mongolock.Lease) error { return nil }), mongolock.ErrHeld)
			_, err := f.client.Acquire(ctx, "k")
			assert.ErrorIs(t, err, mongolock.ErrHeld)
			return nil
		}))
	})
}

func TestTheErrorAndThePanicOfAUseLeaveTheKeyForTheNext(t *testing.T) {
	inBubble(t, func(f *fixture) {
		first, mine := f.use(0), errors.New("mine")
		assert.Equal(t, mine, f.key.Do(f.Context(), func(context.Context, *mongolock.Lease) error { return mine }))
		assert.Panics(t, func() {
			_ = f.key.Do(f.Context(), func(context.Context, *mongolock.Lease) error { panic("why not") })
		})
		assert.Equal(t, first, f.use(0))
	})
}

func TestAUseMayReleaseTheLeaseItself(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var first int64
		require.NoError(t, f.key.Do(f.Context(), func(_ context.Context, l *mongolock.Lease) error {
			first = l.Token()
			return l.Release()
		}))
		assert.False(t, f.isHeld())
		assert.Greater(t, f.use(0), first)
	})
}

func TestCloseEndsWaitsAndTheUseUnderWayAndFreesTheKey(t *testing.T) {
	inBubble(t, func(f *fixture) {
		stopped := make(chan time.Time, 1)
		inUse := f.background(func() {
			err := f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error {
				<-ctx.Done()
				time.Sleep(time.Second) // it takes a while to stop
				assert.True(t, f.isHeld())
				stopped <- time.Now()
				return context.Cause(ctx)
			})
			assert.ErrorIs(t, err, mongolock.ErrClosed)
		})
		began := time.Now()
		waits := f.background(func() {
			err := f.key.Do(f.Context(), func(context.Context, *mongolock.Lease) error { return errors.New("it was called") })
			assert.ErrorIs(t, err, mongolock.ErrClosed)
			assert.Equal(t, began, time.Now())
		})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				assert.NoError(t, f.key.Close())
				assert.Equal(t, time.Second, time.Since(began))
			})
		}
		all.Wait()
		inUse.Wait()
		waits.Wait()
		<-stopped
		assert.False(t, f.isHeld())
		assert.ErrorIs(t, f.key.Do(f.Context(), func(context.Context, *mongolock.Lease) error { return nil }), mongolock.ErrClosed)
	})
}

func TestCloseEndsTheWaitForAnotherProcess(t *testing.T) {
	inBubble(t, func(f *fixture) {
		l, err := f.rival.Acquire(f.Context(), "k")
		require.NoError(t, err)
		waits := f.background(func() {
			err := f.key.Do(f.Context(), func(context.Context, *mongolock.Lease) error { return errors.New("it was called") })
			assert.ErrorIs(t, err, mongolock.ErrClosed)
		})
		require.NoError(t, f.key.Close())
		waits.Wait()
		require.NoError(t, l.Release())
		synctest.Wait()
		assert.False(t, f.isHeld())
	})
}

func TestWhatIsWrongIsRefused(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, err := keep.New(nil, "k", idle)
		assert.EqualError(t, err, "keep: the locker is nil")
		_, err = keep.New(f.client, "", idle)
		assert.EqualError(t, err, "keep: the key is empty")
		_, err = keep.New(f.client, "k", 0)
		assert.EqualError(t, err, "keep: idle is 0s: must be positive")
		assert.EqualError(t, f.key.Do(f.Context(), nil), "keep: Do: fn is nil")
		shared, err := keep.New(f.client, "k", idle, mongolock.Shared())
		require.NoError(t, err)
		assert.ErrorContains(t, shared.Do(f.Context(), func(context.Context, *mongolock.Lease) error { return nil }), "Shared")
		require.NoError(t, shared.Close())
	})
}
