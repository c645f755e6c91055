package scheduletest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/scheduletest"
)

// addReport stands for the code under test: it puts its job on a schedule.
func addReport(jobs *schedule.Scheduler, written chan<- string) error {
	return jobs.Add("report", schedule.Every(50*time.Millisecond), func(ctx context.Context, run schedule.Run) error {
		if run.Attempt > 1 {
			written <- "again, after a run that died"
			return nil
		}
		select {
		case written <- "written":
		case <-ctx.Done():
		}
		return ctx.Err()
	})
}

// Hold shows that a fire which another process runs is not run here.
func ExampleJobs_Hold() {
	lab.Example(func(t testing.TB) {
		jobs := scheduletest.New(t)
		written := make(chan string)
		if err := addReport(jobs.Scheduler, written); err != nil {
			t.Fatalf("%v", err)
		}
		release := jobs.Hold("report")
		jobs.Start()
		select {
		case <-written:
		case <-time.After(200 * time.Millisecond):
			fmt.Println("somebody else writes it")
		}
		release()
		fmt.Println(<-written)
	})
	// Output:
	// somebody else writes it
	// written
}

// Lose shows whether a run stops when its lease is lost, and what becomes of its fire.
func ExampleJobs_Lose() {
	lab.Example(func(t testing.TB) {
		jobs := scheduletest.New(t)
		written := make(chan string) // it is never read: the run waits for its context's end
		if err := addReport(jobs.Scheduler, written); err != nil {
			t.Fatalf("%v", err)
		}
		jobs.Start()
		for jobs.Stats().Held == 0 {
			time.Sleep(time.Millisecond) // virtual: the run goes on
		}
		jobs.Lose("report")
		fmt.Println(<-written)
	})
	// Output: again, after a run that died
}
