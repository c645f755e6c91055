// Package scheduletest tests code that runs jobs. It has a real Scheduler on a store in memory,
// and causes the three things that go wrong with jobs.
//
//	func TestTheReportIsWrittenEachNight(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			jobs := scheduletest.New(t) // inside the bubble, with its t
//			addJobs(jobs.Scheduler)     // your code
//			jobs.Start()
//			time.Sleep(7 * 24 * time.Hour) // passes in milliseconds, with seven reports
//			...
//		})
//	}
//
// [Jobs.Hold] has another process run a job, [Jobs.Lose] takes a run's lease away from your
// code, and [Jobs.Fail] makes the store unreachable. Everything else (plans, claims, renewals,
// overlapping, late and repeated runs) is done by the real package schedule.
//
// It works in real time and in virtual time. With testing/synctest, call New inside the bubble
// and with the bubble's own t. Time begins there at midnight, the first of January 2000, in UTC.
package scheduletest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside/above"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// stopping is how long the jobs may take to return after the test has ended.
const stopping = time.Second

// Jobs is a Scheduler on a store of its own, in memory. Give your code the Scheduler. New makes
// Jobs.
type Jobs struct {
	*schedule.Scheduler

	t       testing.TB
	store   *failing
	started bool
}

// New makes Jobs for one test. None of them runs until Start is called, or Run.
//
// They log to the test's log unless an option names another logger.
func New(t testing.TB, opts ...schedule.Option) *Jobs {
	t.Helper()
	j := &Jobs{t: t, store: newFailing()}
	logger := schedule.WithLogger(slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	made, err := above.Scheduler(j.store, append([]schedule.Option{logger}, opts...))
	if err != nil {
		t.Fatalf("scheduletest: %v", err)
	}
	j.Scheduler = made.(*schedule.Scheduler)
	t.Cleanup(j.store.releaseAll)
	return j
}

// Another makes the Scheduler of another process that shares the jobs. Your code runs it.
func (j *Jobs) Another(opts ...schedule.Option) *schedule.Scheduler {
	j.t.Helper()
	made, err := above.Scheduler(j.store.mem, opts)
	if err != nil {
		j.t.Fatalf("scheduletest: Another: %v", err)
	}
	return made.(*schedule.Scheduler)
}

// Start runs the jobs in the background until the test ends. Then the contexts of their runs
// end. A run that has not returned a second later fails the test.
func (j *Jobs) Start() {
	j.t.Helper()
	if j.started {
		j.t.Fatalf("scheduletest: Start: is running already")
	}
	j.started = true
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	j.t.Cleanup(func() {
		j.Fail(nil) // runs that have ended can be recorded
		stop()
		timer := time.NewTimer(stopping)
		defer timer.Stop()
		select {
		case err := <-ended:
			if err != nil {
				j.t.Errorf("scheduletest: Run: %v", err)
			}
		case <-timer.C:
			j.t.Errorf("scheduletest: a job has not returned %v after its context ended", stopping)
		}
	})
}

// Hold has another process run a job, until release is called or the test ends. That process
// claims each due time just before the code under test would, and its run goes on until release.
// The run ends as succeeded. Then that process is gone: due times that its run kept waiting are
// left to your code. Hold fails the test if the job is running.
func (j *Jobs) Hold(job string) (release func()) {
	j.t.Helper()
	states, err := j.store.mem.Read(context.Background(), []string{job}, jobs.WithoutPast)
	if err != nil {
		j.t.Fatalf("scheduletest: Hold(%q): %v", job, err)
	}
	if job == "" {
		j.t.Fatalf("scheduletest: Hold: the job's name is empty")
	}
	for _, r := range states[0].Runs {
		if r.ExpireAt.After(states[0].Now) {
			j.t.Fatalf("scheduletest: Hold(%q): %s runs it", job, r.Owner)
		}
	}
	h, held := j.store.hold(job)
	if held {
		j.t.Fatalf("scheduletest: Hold(%q): is held already", job)
	}
	return func() { j.store.release(h) }
}

// Lose takes the lease of a job's run away from the code under test, as an outage longer than
// the lease would. When Lose returns the code has noticed: the lease's Err matches ErrLost, and
// the run's context is cancelled. For other processes the run has died: it is repeated, unless
// the job has AtMostOnce, and its past has it from the next run on. Use Hold to see what happens
// if another process is the next; code that returns at once may run again before. Lose fails the
// test if the code under test does not run the job.
func (j *Jobs) Lose(job string) {
	j.t.Helper()
	runs := above.Runs(j.Scheduler, job)
	for _, run := range runs {
		lease := run.(*mongolock.Lease)
		j.store.lose(job, lease.ID())
		_ = lease.Renew(context.Background()) // the lease's Err is checked instead
		if err := lease.Err(); !errors.Is(err, mongolock.ErrLost) {
			j.t.Errorf("scheduletest: Lose(%q): the run ended meanwhile: %v", job, err)
		}
	}
	if len(runs) == 0 {
		j.t.Fatalf("scheduletest: Lose(%q): the code under test does not run it", job)
	}
}

// Fail makes every call of the store fail with err, as if the database could not be reached,
// until Fail(nil). The code under test cannot know whether such a call was applied
// (ErrOutcomeUnknown), unless err is joined with mongolock.ErrNotApplied. Jobs that Hold runs
// are not affected.
func (j *Jobs) Fail(err error) { j.store.fail(err) }
