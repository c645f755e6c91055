package scheduletest_test

import (
	"context"

	"fmt"
	"io"

	"testing"
	"time"

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

// inTest stands for func TestReport(t *testing.T), because an example has no t.
func inTest(test func(t testing.TB)) {
	t := new(exampleT)
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
	}()
	test(t)
}

// An exampleT is as much of a testing.T as the examples need.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func (*exampleT) Helper()                  {}
func (*exampleT) Output() io.Writer        { return io.Discard }
func (*exampleT) Context() context.Context { return context.Background() }
func (t *exampleT) Cleanup(f func())       { t.cleanups = append(t.cleanups, f) }

func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Hold shows that a fire which another process runs is not run here.
func ExampleJobs_Hold() {
	inTest(func(t testing.TB) {
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
	inTest(func(t testing.TB) {
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
