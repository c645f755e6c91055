package schedule_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
)

// runs has a job run n times, in a process of its own.
func runs(n int, database schedule.Store, fn schedule.Func, opts ...schedule.JobOption) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	jobs, err := schedule.NewWithStore(database, schedule.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Panic(err)
	}
	err = jobs.Add("report", schedule.Every(50*time.Millisecond), func(ctx context.Context, run schedule.Run) error {
		err := fn(ctx, run)
		if n--; n == 0 {
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

// A run takes three periods. With Skip, the fires that came due meanwhile do not run.
func ExampleOnOverlap() {
	var fires []time.Time
	runs(2, schedule.NewMemory(), func(_ context.Context, run schedule.Run) error {
		fires = append(fires, run.Fire)
		time.Sleep(150 * time.Millisecond) // real: the job takes three periods
		return nil
	}, schedule.OnOverlap(schedule.Skip))
	fmt.Println("fires skipped:", fires[1].Sub(fires[0]) > 100*time.Millisecond)
	// Output: fires skipped: true
}

// A process stops, and another one starts later. With All it begins where the first one
// ended.
func ExampleOnMissed() {
	database := schedule.NewMemory()
	nothing := func(context.Context, schedule.Run) error { return nil }
	runs(1, database, nothing, schedule.OnMissed(schedule.All))
	time.Sleep(200 * time.Millisecond) // no process is up
	started := time.Now()
	runs(2, database, func(_ context.Context, run schedule.Run) error {
		fmt.Println("due while no process was up:", run.Fire.Before(started))
		return nil
	}, schedule.OnMissed(schedule.All))
	// Output:
	// due while no process was up: true
	// due while no process was up: true
}

// A process dies during a run. With AtOnce the fire is repeated.
func ExampleOnDeath() {
	database := schedule.NewMemory()
	_, err := database.Claim(context.Background(), schedule.Claim{ // the process that dies
		Ref:  schedule.Ref{Job: "report", ID: "died"},
		Fire: time.Now().Add(-time.Second), TTL: 200 * time.Millisecond, Attempt: 1, Keep: 10,
	})
	if err != nil {
		log.Panic(err)
	}
	runs(1, database, func(_ context.Context, run schedule.Run) error {
		fmt.Println("attempt", run.Attempt)
		return nil
	}, schedule.OnDeath(schedule.AtOnce))
	// Output: attempt 2
}

// Each run has a lease, which has the options of a lock's.
func ExampleLease() {
	runs(1, schedule.NewMemory(), func(_ context.Context, run schedule.Run) error {
		left := run.Lease.Remaining()
		fmt.Println(left > 50*time.Second, left <= time.Minute)
		return nil
	}, schedule.Lease(mongolock.TTL(time.Minute)))
	// Output: true true
}

func ExampleKeep() {
	database := schedule.NewMemory()
	runs(3, database, func(context.Context, schedule.Run) error { return nil }, schedule.Keep(2))
	jobs, err := database.Look(context.Background(), []string{"report"}, schedule.WithPast)
	fmt.Println(len(jobs[0].Past), err)
	// Output: 2 <nil>
}

func ExampleNewMemory() {
	database := schedule.NewMemory()
	runs(1, database, func(context.Context, schedule.Run) error { return nil })
	names, err := database.Names(context.Background())
	fmt.Println(names, err)
	// Output: [report] <nil>
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
	jobs, err := schedule.NewWithStore(schedule.NewMemory(), opts...)
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
	_, err := schedule.NewWithStore(schedule.NewMemory(), schedule.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(err)
	_, err = schedule.NewWithStore(schedule.NewMemory(), schedule.WithLogger(nil))
	fmt.Println(err)
	// Output:
	// <nil>
	// schedule: WithLogger(nil): must not be nil
}

// With two workers, one of three jobs that are due at the same time waits.
func ExampleWithWorkers() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	jobs, err := schedule.NewWithStore(schedule.NewMemory(), schedule.WithWorkers(2))
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
		late = run.Began.Sub(run.Fire)
		return nil
	}, schedule.WithJitter(20*time.Millisecond))
	fmt.Println("never too early:", late >= 0)
	// Output: never too early: true
}
