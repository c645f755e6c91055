package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

func TestReleaseAfterALossReportsItAndNeverFreesALaterHolder(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k")
		b.On(lab.Renew, lab.Fail(errNet))
		next := acquire(t, newClient(t, b.Mem), "k")
		assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
		for range 3 {
			assert.ErrorIs(t, l.Release(), mongolock.ErrLost)
		}
		time.Sleep(time.Hour)
		assert.NoError(t, next.Err())
	})
}

func TestConcurrentReleasesWaitForOneCommand(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		b.On(lab.Release, lab.Slow(time.Second, 0))
		l := acquire(t, newClient(t, b), "k")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { release(t, l) })
		}
		wg.Wait()
		assert.Equal(t, 1, b.Count(lab.Release), "commands")
		mustBeFree(t, b, "k")
	})
}

// Under the race detector: each attempt, and what the observer is told of it, is over before the next begins.
func TestReleasesThatFailAtOnceDoNotDisturbEachOther(t *testing.T) {
	s := lab.New(memstore.New())
	client := newClient(t, s)
	for range 100 {
		lease := acquire(t, client, "k")
		s.On(lab.Release, lab.Fail(errNet))
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for range 4 {
					_ = lease.Release()
				}
			})
		}
		users.Wait()
		s.On(lab.Release, nil)
		release(t, lease)
	}
}

func TestAReleaseThatFailsCanBeRepeatedAndIsRetriedInTheBackground(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied ", applied), func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				fail := func(_ context.Context, call *lab.Call) error {
					if applied {
						_ = call.Do()
					}
					return errNet
				}
				c := newClient(t, b)
				b.On(lab.Release, fail)
				l := acquire(t, c, "k")
				err := l.Release()
				assert.ErrorIs(t, err, errNet)
				assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
				assert.NotErrorIs(t, err, mongolock.ErrLost)
				assert.ErrorIs(t, l.Release(), errNet)
				b.On(lab.Release, nil)
				release(t, l)
				mustBeFree(t, b, "k")

				b.On(lab.Release, fail)
				l = acquire(t, c, "k2")
				assert.ErrorIs(t, l.Release(), errNet)
				time.Sleep(5 * time.Second)
				b.On(lab.Release, nil)
				time.Sleep(6 * time.Second)
				mustBeFree(t, b, "k2")
				release(t, l)
			})
		})
	}
}

// Close finds its leases while their holders release them: there is nothing left for it to ask for.
func TestCloseSendsNoReleaseOfNoLease(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		leases := mongolock.Leases{acquire(t, c, "a"), acquire(t, c, "b")}
		b.On(lab.Release, lab.Slow(3*time.Second, 0))
		var holders sync.WaitGroup
		for _, l := range leases {
			holders.Go(func() { assert.NoError(t, l.Release()) })
		}
		time.Sleep(time.Second) // virtual: both are under way
		start := time.Now()
		assert.NoError(t, c.Close())
		tookBetween(t, start, 2*time.Second, 2*time.Second)
		holders.Wait()
		assert.Equal(t, len(leases), b.Count(lab.Release), "one of each holder")
	})
}

func TestReleaseTakesAtMostFiveSeconds(t *testing.T) {
	neverSent := func(ctx context.Context, call *lab.Call) error {
		return errors.Join(lab.Hang(ctx, call), store.ErrNotApplied)
	}
	for name, released := range map[string]lab.Hook{"hanging": lab.Hang, "no server to send it to": neverSent} {
		t.Run(name, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				c := newClient(t, b)
				l := acquire(t, c, "k")
				waiter := inBackground(t.Context(), c, "k")
				synctest.Wait()
				b.On(lab.Transfer, neverSent)
				b.On(lab.Release, released)
				start := time.Now()
				assert.Error(t, l.Release(), "the store hangs")
				tookBetween(t, start, time.Second, 5*time.Second)
				b.All(nil)
				assert.NoError(t, (<-waiter).err)
			})
		})
	}
}

func TestReleaseOfAKeyThatWasDeletedByHandReportsTheLoss(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k")
		b.Mem.Delete("k")
		assert.ErrorIs(t, l.Release(), mongolock.ErrLost)
		assert.ErrorIs(t, l.Release(), mongolock.ErrLost)
	})
}

func TestAReleaseAfterMinHoldFreesTheKeyAtOnce(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k", mongolock.MinHold(20*time.Second))
		wait := inBackground(t.Context(), c, "k")
		time.Sleep(21 * time.Second)
		release(t, l)
		r := <-wait
		require.NoError(t, r.err)
		tookBetween(t, r.when, 0, 0)
		release(t, r.lease)
		mustBeFree(t, b, "k")
	})
}

// A slowLog is a log handler that takes 300 ms for each line, as if it wrote to a full
// pipe.
type slowLog struct {
	slog.Handler
	begun chan struct{}
}

func (s slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (s slowLog) Handle(context.Context, slog.Record) error {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	time.Sleep(300 * time.Millisecond)
	return nil
}

func TestCloseAtTheMomentOfALossWaitsForTheMargin(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		log := slowLog{slog.DiscardHandler, make(chan struct{}, 1)}
		c := newClient(t, b, mongolock.WithLogger(slog.New(log)), mongolock.WithMargin(2*time.Second))
		l := acquire(t, c, "k", mongolock.MaxHold(10*time.Second))
		<-l.Done()
		lost := time.Now()
		<-log.begun
		go c.Close()
		acquire(t, newClient(t, b.Mem), "k")
		tookBetween(t, lost, 2*time.Second, 3*time.Second)
	})
}
