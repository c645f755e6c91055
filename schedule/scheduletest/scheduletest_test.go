package scheduletest_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testmisuse"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/scheduletest"
)

var (
	errAway  = errors.New("the database is away")
	silently = schedule.WithLogger(slog.New(slog.DiscardHandler))
	hourly   = schedule.Every(time.Hour)
)

// A diary is what a job of the code under test did: the hours of its fires.
type diary struct {
	mu    sync.Mutex
	hours []int
}

func (d *diary) write(_ context.Context, run schedule.Run) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hours = append(d.hours, run.Due.UTC().Hour())
	return nil
}

func (d *diary) read() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]int(nil), d.hours...)
}

// inVirtualTime runs a test from half past midnight on.
func inVirtualTime(t *testing.T, test func(t *testing.T, jobs *scheduletest.Jobs)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * time.Minute) // virtual: to the middle of an hour
		test(t, scheduletest.New(t, silently))
	})
}

func pastOf(t *testing.T, jobs *scheduletest.Jobs, job string) []schedule.Run {
	t.Helper()
	state, err := jobs.Job(t.Context(), job)
	require.NoError(t, err)
	return state.Past
}

func TestAWeekOfNightsPassesAtOnce(t *testing.T) {
	began := time.Now()
	inVirtualTime(t, func(t *testing.T, jobs *scheduletest.Jobs) {
		var d diary
		require.NoError(t, jobs.Add("report", schedule.Cron("0 3 * * *"), d.write))
		jobs.Start()
		time.Sleep(7 * 24 * time.Hour) // virtual: a week of fires
		assert.Equal(t, []int{3, 3, 3, 3, 3, 3, 3}, d.read())
	})
	assert.Less(t, time.Since(began), 20*time.Second)
}

func TestAHeldJobRunsElsewhereAndSkipsAsItWouldHere(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, jobs *scheduletest.Jobs) {
		var d diary
		require.NoError(t, jobs.Add("report", hourly, d.write))
		jobs.Start()
		time.Sleep(time.Hour) // 01:00
		release := jobs.Hold("report")
		time.Sleep(3 * time.Hour) // 02:00 is claimed there; 03:00 and 04:00 find it busy
		state, err := jobs.Job(t.Context(), "report")
		require.NoError(t, err)
		require.Len(t, state.Runs, 1)
		assert.Equal(t, "somebody else", state.Runs[0].Owner)
		assert.True(t, state.Runs[0].ExpireAt.After(state.Now), "it is renewed")
		release()
		time.Sleep(2 * time.Hour) // 04:00, late, and 05:00 and 06:00
		assert.Equal(t, []int{1, 4, 5, 6}, d.read())
		assert.Equal(t, schedule.Succeeded, pastOf(t, jobs, "report")[3].Outcome)
	})
}

func TestAFireThatAnotherProcessRunsIsNotRunHere(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, jobs *scheduletest.Jobs) {
		var d diary
		require.NoError(t, jobs.Add("report", hourly, d.write))
		jobs.Start()
		release := jobs.Hold("report")
		time.Sleep(30*time.Minute + time.Second) // the run there takes a second
		release()
		time.Sleep(time.Hour) // virtual: one fire
		assert.Equal(t, []int{2}, d.read())
	})
}

func TestAHeldJobWithEachRunsEachDueTimeAfterwards(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, jobs *scheduletest.Jobs) {
		var d diary
		require.NoError(t, jobs.Add("report", hourly, d.write, schedule.Each()))
		jobs.Start()
		release := jobs.Hold("report")
		time.Sleep(3 * time.Hour) // 01:00 is claimed there; 02:00 and 03:00 wait
		assert.Empty(t, d.read())
		release()
		time.Sleep(31 * time.Minute) // virtual: past the next fire
		assert.Equal(t, []int{2, 3, 4}, d.read())
	})
}

func TestEachFireOfAJobWhoseRunsMayOverlapIsHeld(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, jobs *scheduletest.Jobs) {
		var d diary
		require.NoError(t, jobs.Add("report", hourly, d.write, schedule.Beside()))
		jobs.Start()
		release := jobs.Hold("report")
		time.Sleep(3 * time.Hour) // virtual: three fires
		state, err := jobs.Job(t.Context(), "report")
		require.NoError(t, err)
		assert.Len(t, state.Runs, 3)
		release()
		time.Sleep(time.Hour) // virtual: one fire
		assert.Equal(t, []int{4}, d.read())
		assert.Len(t, pastOf(t, jobs, "report"), 4)
	})
}

func TestALostRunIsToldAndTheJobGoesOnWithItsNextDueTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, jobs *scheduletest.Jobs) {
		running, ended := make(chan schedule.Run, 9), make(chan error, 9)
		require.NoError(t, jobs.Add("report", hourly, func(ctx context.Context, run schedule.Run) error {
			running <- run
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		}, schedule.AtMostOnce()))
		jobs.Start()
		run := <-running
		jobs.Fail(errAway) // also while the store is unreachable
		jobs.Lose("report")
		require.ErrorIs(t, run.Lease.Err(), mongolock.ErrLost)
		require.ErrorIs(t, <-ended, mongolock.ErrLost)
		jobs.Fail(nil)
		time.Sleep(10 * time.Second) // virtual: time for what is told of the loss
		assert.Equal(t, 2, (<-running).Due.UTC().Hour(), "the job goes on with the next fire")
		jobs.Lose("report")
		assert.Equal(t, 3, (<-running).Due.UTC().Hour())
		jobs.Lose("report")
		state, err := jobs.Job(t.Context(), "report")
		require.NoError(t, err)
		assert.NotEmpty(t, state.Runs, "it ran out and is not replaced yet")
		assert.Equal(t, 4, (<-running).Due.UTC().Hour())
	})
}

func TestALostRunIsRepeated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, jobs *scheduletest.Jobs) {
		attempts := make(chan int, 3)
		require.NoError(t, jobs.Add("report", hourly, func(ctx context.Context, run schedule.Run) error {
			attempts <- run.Attempt
			if run.Attempt == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}))
		jobs.Start()
		require.Equal(t, 1, <-attempts)
		lost := time.Now()
		jobs.Lose("report")
		require.Equal(t, 2, <-attempts)
		assert.Less(t, time.Since(lost), time.Second)
	})
}

func TestAStoreThatIsAwayMakesADueTimeLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, jobs *scheduletest.Jobs) {
		var d diary
		require.NoError(t, jobs.Add("report", hourly, d.write))
		jobs.Start()
		time.Sleep(30*time.Minute - time.Millisecond) // virtual: until just before the fire
		jobs.Fail(errAway)
		_, err := jobs.Job(t.Context(), "report")
		require.ErrorIs(t, err, errAway)
		time.Sleep(time.Second) // virtual: the store is away
		jobs.Fail(nil)
		time.Sleep(time.Minute) // virtual: what is repeated is done
		assert.Equal(t, []int{1}, d.read())

		jobs.Fail(errors.Join(errAway, mongolock.ErrNotApplied))
		time.Sleep(90 * time.Minute) // virtual: past the first fire
		jobs.Fail(nil)
		time.Sleep(time.Hour) // virtual: one fire
		assert.Equal(t, []int{1, 2, 3}, d.read(), "02:00 is late")
	})
}

func TestInRealTimeToo(t *testing.T) {
	jobs := scheduletest.New(t, silently)
	ran := make(chan struct{}, 100)
	require.NoError(t, jobs.Add("report", schedule.Every(20*time.Millisecond), func(context.Context, schedule.Run) error {
		ran <- struct{}{}
		return nil
	}))
	jobs.Start()
	<-ran
}

func TestControlAMisuseFailsTheTestAndSaysWhy(t *testing.T) {
	start := func(f *testmisuse.T, fn schedule.Func) *scheduletest.Jobs {
		f.Cleanup(func() { time.Sleep(time.Hour) }) // virtual: a job that is late returns before the bubble ends
		jobs := scheduletest.New(f, silently)
		require.NoError(t, jobs.Add("report", hourly, fn))
		jobs.Start()
		return jobs
	}
	short := func(context.Context, schedule.Run) error { return nil }
	long := func(ctx context.Context, _ schedule.Run) error { <-ctx.Done(); return nil }
	for want, misuse := range map[string]func(f *testmisuse.T){
		"WithWorkers(0)":     func(f *testmisuse.T) { scheduletest.New(f, schedule.WithWorkers(0)) },
		"is running already": func(f *testmisuse.T) { start(f, short).Start() },
		`Hold("report"): is held already`: func(f *testmisuse.T) {
			jobs := start(f, short)
			jobs.Hold("report")
			jobs.Hold("report")
		},
		`Hold("report"): somebody else runs it`: func(f *testmisuse.T) {
			jobs := start(f, short)
			jobs.Hold("report")
			time.Sleep(90 * time.Minute) // virtual: past the first fire
			jobs.Hold("report")
		},
		"Hold: the job's name is empty": func(f *testmisuse.T) { start(f, short).Hold("") },
		`Hold("report"): me runs it`: func(f *testmisuse.T) {
			jobs := scheduletest.New(f, silently, schedule.WithOwner("me"))
			require.NoError(t, jobs.Add("report", hourly, long))
			jobs.Start()
			time.Sleep(90 * time.Minute) // virtual: past the first fire
			jobs.Hold("report")
		},
		`Lose("report"): the code under test does not run it`: func(f *testmisuse.T) {
			jobs := start(f, short)
			time.Sleep(90 * time.Minute) // virtual: past the first fire
			jobs.Lose("report")
		},
		`Lose("held"): the code under test does not run it`: func(f *testmisuse.T) {
			jobs := start(f, short)
			require.NoError(t, jobs.Add("held", hourly, short))
			jobs.Hold("held")
			time.Sleep(90 * time.Minute) // virtual: past the first fire
			jobs.Lose("held")
		},
		"a job has not returned 1s after its context ended": func(f *testmisuse.T) {
			start(f, func(context.Context, schedule.Run) error { time.Sleep(time.Minute); return nil }) // virtual: the run's work
			time.Sleep(time.Hour + time.Second)                                                         // virtual: past the first fire, and the time to stop
		},
	} {
		assert.Contains(t, testmisuse.Failures(t, misuse), want)
	}
	assert.Empty(t, testmisuse.Failures(t, func(f *testmisuse.T) {
		jobs := start(f, func(ctx context.Context, _ schedule.Run) error {
			<-ctx.Done()
			time.Sleep(time.Second / 2) // virtual: otherwise it may run again before Hold
			return nil
		})
		time.Sleep(90 * time.Minute) // virtual: past the first fire
		jobs.Lose("report")
		jobs.Hold("report")
		time.Sleep(time.Hour) // virtual: one fire
	}), "a test that does nothing wrong")
}
