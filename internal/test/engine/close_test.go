package engine_test

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
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
)

func TestCloseReleasesEverythingOneMarginAfterItTellsTheHolders(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		var leases []*mongolock.Lease
		for i := range 100 {
			leases = append(leases, acquire(t, c, fmt.Sprint(i)))
		}
		ctx := leases[0].Context(t.Context())
		start := time.Now()
		done := make(chan error)
		go func() { done <- c.Close() }()
		<-ctx.Done()
		tookBetween(t, start, 0, 0)
		assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrClosed)
		time.Sleep(time.Second - 1)
		mustBeHeld(t, b, "0")
		assert.NoError(t, <-done)
		tookBetween(t, start, time.Second, time.Second)
		for _, l := range leases {
			mustBeFree(t, b, l.Key())
			assert.ErrorIs(t, l.Err(), mongolock.ErrClosed)
			release(t, l)
		}
		b.Reset()
		time.Sleep(time.Hour)
		assert.Zero(t, b.Count(), "commands after Close")
	})
}

func TestCloseDoesNotWaitForHoldersThatReleased(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		time.AfterFunc(100*time.Millisecond, func() { release(t, l) })
		start := time.Now()
		assert.NoError(t, c.Close())
		tookBetween(t, start, 100*time.Millisecond, 100*time.Millisecond)
	})
}

func TestCloseDoesNotWaitForARenewalThatHangs(t *testing.T) {
	for _, released := range []bool{true, false} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			c := connect(b)
			l := acquire(t, c, "k")
			b.On(lab.Renew, lab.Hang)
			time.Sleep(10*time.Second + time.Millisecond)
			if released {
				release(t, l)
			}
			start := time.Now()
			assert.NoError(t, c.Close())
			assert.LessOrEqual(t, time.Since(start), time.Second, "the margin")
		})
	}
}

func TestCallsAfterCloseReturnErrClosed(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		ticket := detach(t, acquire(t, c, "k2"))
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				assert.NoError(t, c.Close())
			})
		}
		wg.Wait()
		b.Reset()
		_, errAcquire := c.Acquire(t.Context(), "k")
		_, errTry := c.TryAcquire(t.Context(), "k")
		_, errInspect := c.Inspect(t.Context(), "k")
		_, errBreak := c.Break(t.Context(), "k", "why", 0)
		_, errResume := c.Resume(t.Context(), ticket)
		var errList error
		for _, errList = range c.List(t.Context(), "") {
		}
		for call, err := range map[string]error{
			"Acquire": errAcquire, "TryAcquire": errTry, "Inspect": errInspect, "Break": errBreak, "Resume": errResume,
			"List": errList, "Renew": l.Renew(t.Context()), "Err": l.Err(),
		} {
			assert.ErrorIs(t, err, mongolock.ErrClosed, call)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, call)
		}
		assert.NoError(t, c.Shutdown(t.Context()))
		assert.Zero(t, b.Count(), "commands")
	})
}

func TestCloseEndsWaitsAtOnce(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		acquire(t, newClient(t, b.Mem), "k")
		for _, opts := range [][]mongolock.ClientOption{nil, {mongolock.WithoutFeed()}} {
			c := newClient(t, b, opts...)
			var waits []<-chan result
			for range 10 {
				waits = append(waits, inBackground(t.Context(), c, "k"))
			}
			time.Sleep(time.Minute)
			start := time.Now()
			assert.NoError(t, c.Close())
			for _, w := range waits {
				r := <-w
				assert.ErrorIs(t, r.err, mongolock.ErrClosed)
				assert.NotErrorIs(t, r.err, mongolock.ErrOutcomeUnknown)
			}
			tookBetween(t, start, 0, 0)
		}
	})
}

func TestCloseWhileAClaimIsUnderWayLeavesTheKeyFree(t *testing.T) {
	for _, when := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} { // before it is applied, and after
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			b.On(lab.Acquire, lab.Slow(time.Second, time.Second))
			c := newClient(t, b)
			wait := inBackground(context.WithoutCancel(t.Context()), c, "k")
			time.Sleep(when)
			start := time.Now()
			assert.NoError(t, c.Close())
			tookBetween(t, start, 2*time.Second-when, 2*time.Second-when)
			r := <-wait
			assert.ErrorIs(t, r.err, mongolock.ErrClosed)
			assert.Zero(t, r.when.Sub(start), "the time from Close to the end of the wait")
			mustBeFree(t, b, "k")
		})
	}
}

func TestCloseAfterALossWaitsForTheLostLeasesMargin(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k", mongolock.MaxHold(10*time.Second))
		<-l.Done()
		lost := time.Now()
		time.Sleep(300 * time.Millisecond)
		done := make(chan error)
		go func() { done <- c.Close() }()
		time.Sleep(700*time.Millisecond - 1)
		mustBeHeld(t, b, "k")
		assert.NoError(t, <-done)
		tookBetween(t, lost, time.Second, time.Second)
		mustBeFree(t, b, "k")
	})
}

func TestCloseOnAHangingStoreTakesSixSecondsAndNamesTheKeysThatAreLeft(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b, mongolock.WithoutFeed())
		for i := range 50 {
			acquire(t, c, fmt.Sprint("held-", i))
		}
		for i := range 10 {
			inBackground(t.Context(), c, fmt.Sprint("held-", i))
		}
		acquire(t, newClient(t, b.Mem), "taken")
		inBackground(t.Context(), c, "taken")
		time.Sleep(9 * time.Second)
		b.All(lab.Hang)
		inBackground(t.Context(), c, "claimed")
		time.Sleep(2 * time.Second) // renewals hang too
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := c.Acquire(ctx, "claimed-2")
		cancel()
		assert.ErrorIs(t, err, context.DeadlineExceeded)

		start := time.Now()
		err = c.Close()
		tookBetween(t, start, 6*time.Second, 6*time.Second)
		for _, key := range []string{`"held-0"`, `"held-49"`, `"claimed-2"`} {
			require.ErrorContains(t, err, key, "the keys that are left")
		}
		assert.EqualError(t, c.Close(), err.Error(), "the second Close")
	})
}

func TestCloseWaitsForAReleaseThatFailsAtFirst(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		acquire(t, c, "k")
		b.On(lab.Release, lab.Fail(errNet))
		time.AfterFunc(2*time.Second, func() { b.On(lab.Release, nil) })
		start := time.Now()
		assert.NoError(t, c.Close())
		tookBetween(t, start, 2*time.Second, 6*time.Second)
		mustBeFree(t, b, "k")
	})
}

func TestShutdownLetsHoldersFinish(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		ctx := l.Context(t.Context())
		wait := inBackground(t.Context(), c, "k")
		synctest.Wait()
		done := make(chan error)
		start := time.Now()
		go func() { done <- c.Shutdown(t.Context()) }()
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrClosed)
		assert.ErrorIs(t, (<-wait).err, mongolock.ErrClosed)
		assert.Error(t, l.Context(t.Context()).Err(), "a context that is made now")
		time.Sleep(5 * time.Minute) // the holder takes its time, and its lease is renewed
		assert.NoError(t, l.Err(), "the lease is held until its release")
		mustBeHeld(t, b, "k")
		_, err := c.TryAcquire(t.Context(), "k2")
		assert.ErrorIs(t, err, mongolock.ErrClosed)
		release(t, l)
		assert.NoError(t, <-done)
		tookBetween(t, start, 5*time.Minute, 5*time.Minute)
		mustBeFree(t, b, "k")
	})
}

func TestShutdownGivesUpWithItsContextAndCloses(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		assert.ErrorIs(t, c.Shutdown(ctx), context.DeadlineExceeded)
		tookBetween(t, start, 4*time.Second, 4*time.Second)
		assert.ErrorIs(t, l.Err(), mongolock.ErrClosed)
		mustBeFree(t, b, "k")
	})
}

// A slowFarewell is a store whose feed takes a second to end, as one does that tells a server which
// hangs to close its cursor.
type slowFarewell struct{ *lab.Store }

func (f slowFarewell) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		defer time.Sleep(time.Second)
		f.Mem.Watch(ctx, of)(yield)
	}
}

func TestCloseTakesTheMarginAndFiveSecondsThoughTheFeedIsSlowToEnd(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		const margin = 2 * time.Second
		c := newClient(t, slowFarewell{b}, mongolock.WithMargin(margin))
		acquire(t, newClient(t, b.Mem), "another's")
		acquire(t, c, "k")
		waits := inBackground(t.Context(), c, "another's")
		time.Sleep(time.Second)
		b.On(lab.Release, lab.Hang)
		start := time.Now()
		assert.Error(t, c.Close())
		tookBetween(t, start, margin+5*time.Second, margin+5*time.Second)
		assert.ErrorIs(t, (<-waits).err, mongolock.ErrClosed)
	})
}

// The lease was left to run out. The release may be sent, on a context that has ended.
func TestAReleaseAfterCloseTellsNobody(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		client := newClient(t, s)
		lease := acquire(t, client, "k")
		s.On(lab.Release, lab.Fail(errNet))
		require.Error(t, client.Close())
		s.Reset()
		require.Error(t, lease.Release())
		time.Sleep(time.Minute)
		assert.Equal(t, s.Count(lab.Release), s.Count(), s.Counts())
	})
}
