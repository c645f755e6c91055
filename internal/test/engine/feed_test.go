package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
)

func TestWaitersAreServedWithAndWithoutAWorkingFeed(t *testing.T) {
	for name, broken := range map[string]error{
		"works": nil, "unsupported": fmt.Errorf("no feed: %w", errors.ErrUnsupported), "broken": errNet,
	} {
		t.Run(name, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, f *lab.Store) {
				f.FailFeed(broken)
				one, two := newClient(t, f), newClient(t, f)
				for range 5 {
					l := acquire(t, one, "k")
					wait := inBackground(t.Context(), two, "k")
					time.Sleep(5 * time.Minute)
					start := time.Now()
					release(t, l)
					r := <-wait
					require.NoError(t, r.err)
					tookBetween(t, start, 0, 1200*time.Millisecond)
					release(t, r.lease)
				}
				if errors.Is(broken, errors.ErrUnsupported) {
					assert.Equal(t, 1, f.Count(lab.Watch), "calls of Watch on a store without a feed")
				}
			})
		})
	}
}

func TestWaitersAreServedWhenTheFeedFailsAndComesBack(t *testing.T) {
	lab.Test(t, func(t *testing.T, f *lab.Store) {
		one, two := newClient(t, f), newClient(t, f)
		for range 20 {
			l := acquire(t, one, "k")
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(10 * time.Second)
			f.FailFeed(errNet)
			time.Sleep(7 * time.Second)
			f.FailFeed(nil)
			start := time.Now()
			release(t, l)
			r := <-wait
			require.NoError(t, r.err)
			tookBetween(t, start, 0, 1200*time.Millisecond)
			release(t, r.lease)

			l = acquire(t, one, "k") // the feed works again, and is used
			wait = inBackground(t.Context(), two, "k")
			time.Sleep(10 * time.Second)
			start = time.Now()
			release(t, l)
			r = <-wait
			tookBetween(t, start, 0, 10*time.Millisecond) // a claim that comes a moment before the release looks again after 5 ms
			release(t, r.lease)
		}
	})
}

func TestAReleaseWhileTheFeedIsBrokenIsSeenWhenItWorksAgain(t *testing.T) {
	lab.Test(t, func(t *testing.T, f *lab.Store) {
		one, two := newClient(t, f), newClient(t, f)
		l := acquire(t, one, "k")
		wait := inBackground(t.Context(), two, "k")
		time.Sleep(10 * time.Second)
		f.On(lab.Look, lab.Fail(errNet)) // polls do not help either
		f.FailFeed(errNet)
		time.Sleep(time.Second)
		release(t, l)
		time.Sleep(time.Second)
		f.FailFeed(nil)
		back := time.Now()
		assert.NoError(t, (<-wait).err)
		tookBetween(t, back, 0, 7*time.Second)
	})
}

func TestAFlappingFeedIsReopenedWithGrowingPausesAndLoggedOnce(t *testing.T) {
	lab.Test(t, func(t *testing.T, f *lab.Store) {
		var lasts atomic.Int64
		lasts.Store(int64(time.Millisecond))
		f.On(lab.Watch, func(_ context.Context, call *lab.Call) error {
			time.AfterFunc(time.Duration(lasts.Load()), func() { f.Cut(errNet) })
			return call.Do()
		})
		f.Heard = func(n store.Notice) bool { return n == store.Notice{} } // it tells only that it is open
		var text lab.Text
		log := slog.New(slog.NewTextHandler(&text, nil))
		logged := func() int { return strings.Count(text.String(), "interrupted") }
		l := acquire(t, newClient(t, f.Mem), "k")
		c := newClient(t, f, mongolock.WithLogger(log))
		wait := inBackground(t.Context(), c, "k")
		time.Sleep(10 * time.Minute)
		assert.LessOrEqual(t, f.Count(lab.Watch), 10*60/4+10, "calls of Watch in ten minutes")
		assert.GreaterOrEqual(t, f.Count(lab.Watch), 10*60/7, "calls of Watch in ten minutes")
		assert.Equal(t, 1, logged(), "log lines")
		lasts.Store(int64(time.Minute)) // the feed works for a minute, so its next failure is logged
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 2, logged(), "log lines")
		start := time.Now()
		release(t, l)
		r := <-wait
		// It was opened at most 6 s after it got a minute to live, so it fails 7 s from now at most. Then the waiter polls.
		tookBetween(t, start, 0, 8*time.Second)
		release(t, r.lease)
	})
}

func TestAnIdleFeedIsClosedAndOpenedAgain(t *testing.T) {
	lab.Test(t, func(t *testing.T, f *lab.Store) {
		one, two := newClient(t, f), newClient(t, f)
		for i := 1; i <= 3; i++ {
			l := acquire(t, one, "k")
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(time.Second)
			release(t, l)
			r := <-wait
			release(t, r.lease)
			assert.Equal(t, i, f.Count(lab.Watch), "calls of Watch")
			time.Sleep(time.Duration(i) * 29 * time.Second) // shorter than the idle time at first, then longer
			if i == 1 {
				l := acquire(t, one, "k")
				wait := inBackground(t.Context(), two, "k")
				time.Sleep(time.Second)
				release(t, l)
				release(t, (<-wait).lease)
				assert.Equal(t, 1, f.Count(lab.Watch), "calls of Watch before the feed was idle for long")
				time.Sleep(time.Minute)
			}
		}
	})
}

func TestAClientWithoutTheFeedAnnouncesItsReleases(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		polls, other := newClient(t, s, mongolock.WithoutFeed()), newClient(t, s)
		l := acquire(t, polls, "k")
		wait := inBackground(t.Context(), other, "k")
		time.Sleep(10 * time.Second)
		start := time.Now()
		release(t, l)
		release(t, (<-wait).lease)
		tookBetween(t, start, 0, 10*time.Millisecond) // a claim that comes a moment before the release looks again after 2 ms
	})
}

// A client that cannot watch the feed goes on announcing its releases, until an
// announcement is refused.
func TestAClientAnnouncesReleasesOnAFeedThatItCannotWatch(t *testing.T) {
	const early = 10 * time.Millisecond // a notice beside the release may come before it: then the waiter asks again
	lab.Test(t, func(t *testing.T, f *lab.Store) {
		announcer := lab.New(f.Mem)
		announcer.On(lab.Watch, lab.Fail(errors.ErrUnsupported))
		one, two := newClient(t, announcer), newClient(t, f)
		for i := range 3 {
			first := acquire(t, two, "k")
			wait := inBackground(t.Context(), one, "k")
			time.Sleep(10 * time.Second)
			release(t, first)
			r := <-wait
			tookBetween(t, r.when, 0, early)
			again := inBackground(t.Context(), two, "k")
			time.Sleep(10 * time.Second)
			start := time.Now()
			release(t, r.lease)
			release(t, (<-again).lease)
			tookBetween(t, start, 0, early)
			assert.Equal(t, 1, announcer.Count(lab.Watch), "calls of Watch by round %d", i)
		}
		announcer.On(lab.Notify, lab.Fail(errors.ErrUnsupported))
		sent := announcer.Count(lab.Notify)
		for range 3 {
			l := acquire(t, one, "k")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = two.Acquire(ctx, "k")
			cancel()
			release(t, l)
			synctest.Wait()
		}
		assert.Equal(t, sent+1, announcer.Count(lab.Notify), "announcements: none follows the refused one")
	})
}

func TestUncontendedTrafficDoesNotKeepTheFeedOpen(t *testing.T) {
	lab.Test(t, func(t *testing.T, f *lab.Store) {
		one, two := newClient(t, f), newClient(t, f)
		for want := 1; want <= 2; want++ {
			l := acquire(t, one, "k")
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(time.Second)
			release(t, l)
			release(t, (<-wait).lease)
			assert.Equal(t, want, f.Count(lab.Watch), "calls of Watch")
			for range 100 {
				time.Sleep(time.Second)
				release(t, acquire(t, two, "j"))
			}
		}
	})
}
