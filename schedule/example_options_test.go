package schedule_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
)

// inMemory makes a Scheduler as a process on MongoDB would with schedule.New.
func inMemory() *schedule.Scheduler {
	jobs, err := schedule.InMemory(schedule.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Panic(err)
	}
	return jobs
}

// runs has a job run n times, and the Scheduler stop.
func runs(n int32, jobs *schedule.Scheduler, fn schedule.Func, opts ...schedule.JobOption) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var left atomic.Int32 // with Beside runs overlap
	left.Store(n)
	jobs.Remove("report")
	err := jobs.Add("report", schedule.Every(50*time.Millisecond), func(ctx context.Context, run schedule.Run) error {
		err := fn(ctx, run)
		if left.Add(-1) == 0 {
			cancel()
		}
		return err
	}, opts...)
	if err != nil {
		log.Panic(err)
	}
	if err := jobs.Run(ctx); err != nil {
		log.Panic(err)
	}
}

// A run takes three periods. Without Each only the latest of the due times meanwhile would run.
func ExampleEach() {
	var due []time.Time
	runs(2, inMemory(), func(_ context.Context, run schedule.Run) error {
		due = append(due, run.Due)
		time.Sleep(150 * time.Millisecond) // real: the job takes three periods
		return nil
	}, schedule.Each())
	fmt.Println(due[1].Sub(due[0]))
	// Output: 50ms
}

// No process is up for a while. What was due then is too late when one starts.
func ExampleMaxLate() {
	jobs := inMemory()
	nothing := func(context.Context, schedule.Run) error { return nil }
	runs(1, jobs, nothing, schedule.MaxLate(20*time.Millisecond))
	time.Sleep(200 * time.Millisecond) // real: no process is up
	started := time.Now()
	runs(1, jobs, func(_ context.Context, run schedule.Run) error {
		fmt.Println("due before the process started:", run.Due.Before(started.Add(-20*time.Millisecond)))
		return nil
	}, schedule.MaxLate(20*time.Millisecond))
	// Output: due before the process started: false
}

// A run takes three periods, and others begin meanwhile.
func ExampleBeside() {
	var under, most atomic.Int32
	runs(6, inMemory(), func(context.Context, schedule.Run) error {
		if now := under.Add(1); now > 1 {
			most.Store(now)
		}
		time.Sleep(150 * time.Millisecond) // real: the job takes three periods
		under.Add(-1)
		return nil
	}, schedule.Beside())
	fmt.Println("side by side:", most.Load() > 1)
	// Output: side by side: true
}

// A process stops during a run. Without AtMostOnce the run would be repeated.
func ExampleAtMostOnce() {
	jobs := inMemory()
	ctx, cancel := context.WithCancel(context.Background())
	err := jobs.Add("report", schedule.Every(50*time.Millisecond), func(ctx context.Context, run schedule.Run) error {
		cancel()
		return ctx.Err()
	}, schedule.AtMostOnce())
	if err != nil {
		log.Panic(err)
	}
	if err := jobs.Run(ctx); err != nil {
		log.Panic(err)
	}
	runs(1, jobs, func(_ context.Context, run schedule.Run) error {
		fmt.Println("attempt", run.Attempt)
		return nil
	}, schedule.AtMostOnce())
	report, err := jobs.Job(context.Background(), "report")
	fmt.Println(report.Past[1].Outcome, report.Past[0].Outcome, err)
	// Output:
	// attempt 1
	// stopped succeeded <nil>
}

// Each run has a lease, which has the options of a lock's.
func ExampleWith() {
	runs(1, inMemory(), func(_ context.Context, run schedule.Run) error {
		left := run.Lease.Remaining()
		fmt.Println(left > 50*time.Second, left <= time.Minute)
		return nil
	}, schedule.With(mongolock.TTL(time.Minute)))
	fmt.Println(inMemory().Add("report", schedule.Every(time.Hour), nil, schedule.With(mongolock.MaxWait(time.Second))))
	// Output:
	// true true
	// schedule: With(MaxWait(1s)): a claim does not wait
	// schedule: Add: fn is nil
}

func ExampleKeep() {
	jobs := inMemory()
	runs(3, jobs, func(context.Context, schedule.Run) error { return nil }, schedule.Keep(2))
	report, err := jobs.Job(context.Background(), "report")
	fmt.Println(len(report.Past), err)
	// Output: 2 <nil>
}

func ExampleScheduler_RunNow() {
	jobs := inMemory()
	ctx, cancel := context.WithCancel(context.Background())
	err := jobs.Add("report", schedule.Cron("0 3 29 2 *"), func(context.Context, schedule.Run) error {
		defer cancel()
		fmt.Println("runs, years before it is due")
		return nil
	})
	if err != nil {
		log.Panic(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { // the command mongolock jobs run does the same
		if err := jobs.RunNow(ctx, "report"); err != nil {
			log.Panic(err)
		}
	})
	if err := jobs.Run(ctx); err != nil {
		log.Panic(err)
	}
	// Output: runs, years before it is due
}

func ExampleScheduler_Pause() {
	jobs := inMemory()
	runs(1, jobs, func(context.Context, schedule.Run) error { return nil })
	fmt.Println(jobs.Pause(context.Background(), "report"))
	fmt.Println(jobs.RunNow(context.Background(), "report"))
	// Output:
	// <nil>
	// schedule: RunNow("report"): the job is paused
}

func ExampleScheduler_Resume() {
	jobs := inMemory()
	runs(1, jobs, func(context.Context, schedule.Run) error { return nil })
	fmt.Println(jobs.Pause(context.Background(), "report"))
	fmt.Println(jobs.Resume(context.Background(), "report"))
	fmt.Println(jobs.Resume(context.Background(), "reprot"))
	// Output:
	// <nil>
	// <nil>
	// schedule: no such job is known: Resume("reprot")
}

func ExampleAt() {
	plan := schedule.At(time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC))
	fmt.Println(plan, "-", plan.Next(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)).Format(time.DateTime))
	// Output: at 2026-12-31T23:00:00Z - 2026-12-31 23:00:00
}

func ExampleRun_Took() {
	began := time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)
	run := schedule.Run{Began: began, Ended: began.Add(90 * time.Second)}
	fmt.Println(run.Took())
	// Output: 1m30s
}

// once runs a job once, in a process with these options.
func once(fn schedule.Func, opts ...schedule.Option) *schedule.Scheduler {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	jobs, err := schedule.InMemory(opts...)
	if err != nil {
		log.Panic(err)
	}
	err = jobs.Add("report", schedule.Every(50*time.Millisecond), func(ctx context.Context, run schedule.Run) error {
		cancel() // the process is told to stop
		return fn(ctx, run)
	})
	if err != nil {
		log.Panic(err)
	}
	if err := jobs.Run(ctx); err != nil {
		log.Panic(err)
	}
	return jobs
}

// The process is told to stop during a run, which then has a minute to end.
func ExampleWithGrace() {
	once(func(ctx context.Context, _ schedule.Run) error {
		time.Sleep(20 * time.Millisecond) // real: the run goes on after the process was told to stop
		fmt.Println("may go on:", ctx.Err() == nil)
		return nil
	}, schedule.WithGrace(time.Minute))
	// Output: may go on: true
}

func ExampleWithOwner() {
	jobs := once(func(context.Context, schedule.Run) error { return nil }, schedule.WithOwner("billing on host-a"))
	report, err := jobs.Job(context.Background(), "report")
	fmt.Println(report.Past[0].Owner, err)
	// Output: billing on host-a <nil>
}

func ExampleWithLogger() {
	_, err := schedule.InMemory(schedule.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(err)
	_, err = schedule.InMemory(schedule.WithLogger(nil))
	fmt.Println(err)
	// Output:
	// <nil>
	// schedule: WithLogger(nil): must not be nil
}

// With two workers, one of three jobs that are due at the same time waits.
func ExampleWithWorkers() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	jobs, err := schedule.InMemory(schedule.WithWorkers(2))
	if err != nil {
		log.Panic(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		err := jobs.Add(name, schedule.Every(50*time.Millisecond), func(ctx context.Context, _ schedule.Run) error {
			fmt.Println("at work")
			<-ctx.Done()
			return nil
		})
		if err != nil {
			log.Panic(err)
		}
	}
	if err := jobs.Run(ctx); err != nil {
		log.Panic(err)
	}
	// Output:
	// at work
	// at work
}

func ExampleWithJitter() {
	var late time.Duration
	once(func(_ context.Context, run schedule.Run) error {
		late = run.Began.Sub(run.Due)
		return nil
	}, schedule.WithJitter(20*time.Millisecond))
	fmt.Println("never too early:", late >= 0)
	// Output: never too early: true
}
