package gocronlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	gocronlock "github.com/mongolock/mongolock/adapters/gocron"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testticks"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

// client is a host's client on a shared store.
func client(t testing.TB, s *memstore.Store) *mongolock.Client {
	t.Helper()
	c, err := mongolock.NewWithStore(s, mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func locker(t testing.TB, l mongolock.Locker, opts ...gocronlock.Option) *gocronlock.Locker {
	t.Helper()
	locker, err := gocronlock.NewLocker(l, opts...)
	require.NoError(t, err)
	return locker
}

func TestOneOfThreeSchedulersRunsEachTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var runs atomic.Int32
		first := time.Now().Add(300 * time.Millisecond)
		for i := range 3 {
			l := locker(t, client(t, s), gocronlock.With(mongolock.MinHold(400*time.Millisecond)))
			sched, err := gocron.NewScheduler(gocron.WithDistributedLocker(l))
			require.NoError(t, err)
			t.Cleanup(func() { _ = sched.Shutdown() })
			late := first.Add(time.Duration(i) * 100 * time.Millisecond) // as the clocks of hosts differ
			_, err = sched.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(func() { runs.Add(1) }), gocron.WithName("report"),
				gocron.WithStartAt(gocron.WithStartDateTime(late)))
			require.NoError(t, err)
			sched.Start()
		}
		time.Sleep(time.Until(first.Add(2500 * time.Millisecond))) // virtual: three ticks and a half
		assert.EqualValues(t, 3, runs.Load(), "runs in 3 ticks")
	})
}

// The control of the test above: without MinHold the second host gets the key too.
func TestControlWithoutMinHoldALateHostRunsTheJobAgain(t *testing.T) {
	l := locker(t, client(t, memstore.New()))
	for i := range 2 {
		lock, err := l.Lock(t.Context(), "report")
		require.NoError(t, err, "host %d was kept out without MinHold", i)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

func TestALeaseThatSeveralHostsMayHoldIsRefused(t *testing.T) {
	client := mongolocktest.New(t)
	for want, opt := range map[string]mongolock.AcquireOption{
		"gocronlock: With(Shared()): several hosts would run the job at the same time": mongolock.Shared(),
		"gocronlock: With(OneOf): several hosts would run the job at the same time":    mongolock.OneOf(1),
		"gocronlock: With: mongolock: TTL(1ns): must be between 100ms and a year":      mongolock.TTL(1),
	} {
		_, err := gocronlock.NewLocker(client, gocronlock.With(mongolock.TTL(time.Second)), gocronlock.With(opt))
		assert.ErrorContains(t, err, want)
	}
	_, err := gocronlock.NewLocker(client, gocronlock.With(mongolock.TTL(time.Second), mongolock.MinHold(time.Second), mongolock.Note("n")))
	assert.NoError(t, err, "what a job can use")
}

func free(t *testing.T, locks *mongolocktest.Locker) {
	t.Helper()
	status, err := locks.Inspect(t.Context(), "report")
	require.NoError(t, err)
	assert.True(t, status.Free(), "not released: %+v", status)
}

func TestLockDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		release := locks.Hold("report")
		defer release()
		began := time.Now()
		_, err := locker(t, locks).Lock(t.Context(), "report")
		assert.ErrorIs(t, err, mongolock.ErrHeld)
		assert.Zero(t, time.Since(began))
	})
}

func TestUnlockWorksUnderACancelledContext(t *testing.T) {
	locks := mongolocktest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := locker(t, locks).Lock(ctx, "report")
	require.NoError(t, err)
	cancel()
	assert.NoError(t, lock.Unlock(ctx))
	free(t, locks)
}

func TestAFailureOfUnlockIsLogged(t *testing.T) {
	locks := mongolocktest.New(t)
	var said strings.Builder
	l := locker(t, locks, gocronlock.WithLogger(slog.New(slog.NewTextHandler(&said, nil))))
	lock, err := l.Lock(t.Context(), "report")
	require.NoError(t, err)
	locks.Lose("report")
	assert.ErrorIs(t, lock.Unlock(t.Context()), mongolock.ErrLost)
	assert.Contains(t, said.String(), "lost while the job ran")
}

func TestShutdownReleasesTheLockOfARunningJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		sched, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker(t, locks)))
		require.NoError(t, err)
		started := make(chan struct{}, 1)
		_, err = sched.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(func(ctx context.Context) { started <- struct{}{}; <-ctx.Done() }),
			gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartImmediately()))
		require.NoError(t, err)
		sched.Start()
		<-started
		assert.NoError(t, sched.Shutdown())
		synctest.Wait() // gocron does not wait for Unlock
		free(t, locks)
	})
}

// lead runs a candidate until ctx ends.
func lead(ctx context.Context, t *testing.T, s *memstore.Store, over chan<- error) *leader.Candidate {
	t.Helper()
	c, err := leader.New(client(t, s), "jobs")
	require.NoError(t, err)
	go func() {
		over <- c.Run(ctx, func(ctx context.Context, _ leader.Term) error { <-ctx.Done(); return nil })
	}()
	return c
}

func TestWithAnElectorTheLeaderRunsAllJobsAndTheLockerIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var runs [2]atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, len(runs))
		var candidates []*leader.Candidate
		for i := range runs {
			c := lead(ctx, t, s, over)
			synctest.Wait() // the first leads, the second waits
			candidates = append(candidates, c)
			elector, err := gocronlock.NewElector(c)
			require.NoError(t, err)
			sched, err := gocron.NewScheduler(gocron.WithDistributedElector(elector), gocron.WithDistributedLocker(uncalled{t}))
			require.NoError(t, err)
			t.Cleanup(func() { _ = sched.Shutdown() })
			_, err = sched.NewJob(gocron.DurationJob(50*time.Millisecond), gocron.NewTask(func() { runs[i].Add(1) }))
			require.NoError(t, err)
			sched.Start()
		}
		counted := func() [2]int32 { return [2]int32{runs[0].Swap(0), runs[1].Swap(0)} }
		time.Sleep(525 * time.Millisecond) // virtual: ten runs and a half
		assert.Equal(t, [2]int32{10, 0}, counted(), "runs while the first leads")
		assert.NoError(t, candidates[0].Resign(ctx))
		time.Sleep(500 * time.Millisecond) // virtual: ten more
		assert.Equal(t, [2]int32{0, 10}, counted(), "runs while the second leads")
		cancel()
		for range runs {
			assert.NoError(t, <-over)
		}
	})
}

// An uncalled locker fails the test when gocron calls it.
type uncalled struct{ t *testing.T }

func (u uncalled) Lock(context.Context, string) (gocron.Lock, error) {
	u.t.Error("gocron calls the locker though it has an elector: the package comment says that it does not")
	return nil, errors.New("no")
}

func TestWrongArgumentsAreRefusedByName(t *testing.T) {
	_, err := gocronlock.NewLocker(nil, nil, gocronlock.WithLogger(nil), gocronlock.With(nil))
	for _, want := range []string{"the locker is nil", "a nil Option", "WithLogger(nil)", "a nil AcquireOption"} {
		assert.ErrorContains(t, err, want)
	}
	_, err = gocronlock.NewElector(nil)
	assert.ErrorContains(t, err, "the candidate is nil")
}

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{testticks.Role: testticks.Child(startGocron)})
}

func TestThreeProcessesRunEachTickOnce(t *testing.T) { testticks.EachRunsOnce(t, "gocron") }

func startGocron(h *testticks.Host) (stop func() error, err error) {
	l, err := gocronlock.NewLocker(h.Locks, gocronlock.With(mongolock.MinHold(testticks.Apart/2)))
	if err != nil {
		return nil, err
	}
	sched, err := gocron.NewScheduler(gocron.WithDistributedLocker(l))
	if err != nil {
		return nil, err
	}
	_, err = sched.NewJob(gocron.DurationJob(testticks.Apart), gocron.NewTask(h.Ran), gocron.WithName("report"),
		gocron.WithStartAt(gocron.WithStartDateTime(h.First)))
	if err != nil {
		return nil, err
	}
	sched.Start()
	return sched.Shutdown, nil
}
