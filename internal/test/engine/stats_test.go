package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestStatsCountLeasesFromGrantToRelease(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		client := newClient(t, b)
		leases := []*mongolock.Lease{acquire(t, client, "a"), acquire(t, client, "b", mongolock.Shared()), acquire(t, client, "b", mongolock.Shared())}
		stats := client.Stats()
		assert.Equal(t, "mongolock", stats.Package)
		assert.Equal(t, 3, stats.Held)
		assert.Zero(t, stats.Unreleased)
		b.On(lab.Release, lab.Fail(errors.New("down")))
		assert.Error(t, leases[0].Release())
		stats = client.Stats()
		assert.Equal(t, 2, stats.Held)
		assert.Equal(t, 1, stats.Unreleased, "one that has ended and may still keep its key")
		b.On(lab.Release, nil)
		for _, l := range leases {
			release(t, l)
		}
		stats = client.Stats()
		assert.Zero(t, stats.Held+stats.Unreleased)
	})
}

func TestALeaseThatRanOutIsNotHeldThoughItsTimerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, memstore.New())
		lease := acquire(t, client, "k", mongolock.NoRenewal(), mongolock.TTL(time.Second))
		assert.Equal(t, 1, client.Stats().Held)
		time.Sleep(lease.Remaining())
		assert.Zero(t, client.Stats().Held)
	})
}

func TestStatsTellHowManyWaitAndForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		client, rival := newClient(t, s), newClient(t, s)
		theirs := acquire(t, rival, "k")
		first := inBackground(t.Context(), client, "k")
		time.Sleep(time.Minute)
		second := inBackground(t.Context(), client, "k")
		synctest.Wait()
		stats := client.Stats()
		assert.Equal(t, 2, stats.Waiters)
		assert.Equal(t, time.Minute, stats.OldestWait)
		assert.Zero(t, stats.OldestRenewal)
		release(t, theirs)
		release(t, (<-first).lease)
		release(t, (<-second).lease)
		stats = client.Stats()
		assert.Zero(t, stats.Waiters)
		assert.Zero(t, stats.OldestWait)
	})
}

func TestStatsTellHowManyComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		theirs := acquire(t, newClient(t, s), "a")
		var rivals []<-chan result
		for range 2 {
			rivals = append(rivals, inBackground(t.Context(), newClient(t, s), "a"))
			synctest.Wait()
		}
		client := newClient(t, s)
		ahead := func() [2]int {
			synctest.Wait()
			stats := client.Stats()
			return [2]int{stats.InLine, stats.Ahead}
		}
		assert.Equal(t, [2]int{0, 0}, ahead())
		got := inBackground(t.Context(), client, "a")
		assert.Equal(t, [2]int{1, 2}, ahead())
		other := acquire(t, newClient(t, s), "b")
		first := inBackground(t.Context(), client, "b")
		synctest.Wait()
		second := inBackground(t.Context(), client, "b")
		assert.Equal(t, [2]int{2, 2}, ahead(), "one place for both")
		release(t, theirs)
		next := <-rivals[0]
		time.Sleep(time.Minute) // it looks now and then
		assert.Equal(t, [2]int{2, 1}, ahead())
		release(t, next.lease)
		release(t, (<-rivals[1]).lease)
		release(t, (<-got).lease)
		release(t, other)
		release(t, (<-first).lease)
		release(t, (<-second).lease)
		assert.Equal(t, [2]int{0, 0}, ahead())
	})
}

func TestTheOldestRenewalGrowsWhileRenewalsFail(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		client := newClient(t, b)
		lease := acquire(t, client, "k") // TTL 30 s: renewed every 10 s
		acquire(t, client, "kept for a day", mongolock.NoRenewal(), mongolock.TTL(24*time.Hour))
		for range 60 {
			time.Sleep(time.Second)
			assert.LessOrEqual(t, client.Stats().OldestRenewal, 10*time.Second)
		}
		time.Sleep(time.Second) // past the renewal of this very moment
		b.On(lab.Renew, lab.Fail(errors.New("down")))
		time.Sleep(20 * time.Second)
		assert.Greater(t, client.Stats().OldestRenewal, 19*time.Second)
		<-lease.Done()
		assert.Zero(t, client.Stats().OldestRenewal, "the lost lease does not count")
	})
}

func TestStatsCountCleanUpsUntilTheyAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		locks.Fail(errors.New("down"))
		_, err := locks.TryAcquire(t.Context(), "k")
		require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		assert.Equal(t, 1, locks.Stats().CleanUps)
		locks.Fail(nil)
		time.Sleep(10 * time.Second)
		assert.Zero(t, locks.Stats().CleanUps)
	})
}

func TestStatsTellTheStateOfTheFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		client, polling, rival := newClient(t, s), newClient(t, s, mongolock.WithoutFeed()), newClient(t, s)
		assert.Equal(t, store.FeedIdle, client.Stats().Feed)
		assert.Equal(t, store.FeedNone, polling.Stats().Feed)
		theirs := acquire(t, rival, "k")
		got := inBackground(t.Context(), client, "k")
		synctest.Wait()
		assert.Equal(t, store.FeedLive, client.Stats().Feed)
		release(t, theirs)
		release(t, (<-got).lease)
		time.Sleep(time.Minute) // it stays open for a while
		assert.Equal(t, store.FeedIdle, client.Stats().Feed)
	})
}

func TestAFeedThatCannotBeOpenedIsBeingOpened(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		s.On(lab.Watch, lab.Fail(errors.New("down")))
		client, rival := newClient(t, s), newClient(t, s)
		theirs := acquire(t, rival, "k")
		got := inBackground(t.Context(), client, "k")
		time.Sleep(time.Minute)
		assert.Equal(t, store.FeedOpening, client.Stats().Feed)
		release(t, theirs)
		release(t, (<-got).lease)
	})
}

// A reader is an observer that reads numbers.
type reader struct {
	*opLog
	stats   func() mongolock.Stats
	stopped bool
}

func (r *reader) Watch(stats func() mongolock.Stats) (stop func()) {
	r.stats = stats
	return func() { r.stopped = true }
}

func TestAStatsObserverReadsTheNumbersUntilTheClientIsClosed(t *testing.T) {
	r := &reader{opLog: newOpLog()}
	client := connect(memstore.New(), mongolock.WithObserver(r))
	acquire(t, client, "k")
	require.NotNil(t, r.stats)
	assert.Equal(t, 1, r.stats().Held)
	assert.False(t, r.stopped)
	assert.NoError(t, client.Close())
	assert.True(t, r.stopped)
	assert.Zero(t, r.stats().Held)
}

func TestStatsMayBeReadByTheObserverOfTheOperationThatChangesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &selfReader{}
		client := connect(memstore.New(), mongolock.WithObserver(r))
		release(t, acquire(t, client, "k"))
		assert.NoError(t, client.Close())
		assert.Positive(t, r.read)
	})
}

// A selfReader is an observer that reads the numbers in each of its calls.
type selfReader struct {
	stats func() mongolock.Stats
	read  int
}

func (r *selfReader) Watch(stats func() mongolock.Stats) (stop func()) {
	r.stats = stats
	return nil
}

func (r *selfReader) Begin(ctx context.Context, _ mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	_ = r.stats()
	r.read++
	return ctx, func(mongolock.Outcome) { _ = r.stats() }
}

func TestStatsAreAddedUp(t *testing.T) {
	a := mongolock.Stats{Package: "mongolock", Held: 1, Unreleased: 2, Waiters: 3, Candidates: 4, InLine: 7, CleanUps: 5, Ahead: 8,
		Feed: store.FeedLive, OldestWait: 2 * time.Second, OldestRenewal: time.Second}
	b := mongolock.Stats{Package: "doclock", Held: 10, Unreleased: 20, Waiters: 30, Candidates: 40, InLine: 70, CleanUps: 50, Ahead: 2,
		Feed: store.FeedNone, OldestWait: time.Second, OldestRenewal: 3 * time.Second}
	assert.Equal(t, mongolock.Stats{Package: "mongolock", Held: 11, Unreleased: 22, Waiters: 33, Candidates: 44, InLine: 77, CleanUps: 55, Ahead: 8,
		Feed: store.FeedLive, OldestWait: 2 * time.Second, OldestRenewal: 3 * time.Second}, a.Plus(b))
}
