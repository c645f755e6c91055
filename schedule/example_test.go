package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
)

// Every process does the same, on MongoDB with schedule.New(db.Collection("jobs")).
func Example() {
	jobs, err := schedule.InMemory()
	if err != nil {
		log.Panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err = jobs.Add("report", schedule.Every(50*time.Millisecond), func(_ context.Context, run schedule.Run) error {
		fmt.Println("runs, in one of the processes:", run.Job)
		cancel()
		return nil
	})
	if err != nil {
		log.Panic(err)
	}
	if err := jobs.Run(ctx); err != nil {
		log.Panic(err)
	}
	// Output: runs, in one of the processes: report
}

// The database cannot be reached here: Run waits for it until its context ends.
func ExampleNew() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	if err != nil {
		log.Fatal(err)
	}
	db := conn.Database("app")
	jobs, err := schedule.New(db.Collection("jobs"), schedule.WithOwner("billing on host-a"), schedule.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	if err := jobs.Add("nightly-report", schedule.Cron("0 3 * * *"), func(ctx context.Context, run schedule.Run) error {
		return report(ctx, run.Due) // ctx ends with the run's lease
	}); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	err = jobs.Run(ctx)
	cancel()
	fmt.Println(err)
	// Output: <nil>
}

func report(context.Context, time.Time) error { return nil }

func ExampleInMemory() {
	jobs, err := schedule.InMemory(schedule.WithWorkers(8), schedule.WithJitter(time.Second))
	fmt.Println(jobs != nil, err)
	// Output: true <nil>
}

func ExampleEvery() {
	plan := schedule.Every(15 * time.Minute)
	fmt.Println(plan, "-", plan.Next(time.Date(2026, 5, 1, 9, 50, 0, 0, time.UTC)).Format(time.TimeOnly))
	// Output: every 15m0s - 10:00:00
}

func ExampleCron() {
	at := time.Date(2026, 5, 1, 9, 50, 0, 0, time.UTC)
	for _, plan := range []schedule.Plan{
		schedule.Cron("0 3 * * *"),
		schedule.Cron("CRON_TZ=Europe/Berlin 0 3 * * *"),
		schedule.Cron("@hourly"),
	} {
		fmt.Println(plan, "-", plan.Next(at).Format(time.RFC3339))
	}
	// Output:
	// cron 0 3 * * * - 2026-05-02T03:00:00Z
	// cron CRON_TZ=Europe/Berlin 0 3 * * * - 2026-05-02T01:00:00Z
	// cron @hourly - 2026-05-01T10:00:00Z
}

func ExampleCronError() {
	jobs, _ := schedule.InMemory()
	err := jobs.Add("report", schedule.Cron("0 25 * * *"), func(context.Context, schedule.Run) error { return nil })
	fmt.Println(err)
	var wrong *schedule.CronError
	if errors.As(err, &wrong) {
		fmt.Printf("%s\n%*s\n", wrong.Expression, wrong.Offset+1, "^")
	}
	// Output:
	// schedule: Cron("0 25 * * *"): at position 3 ("25"): hour: 25 is not between 0 and 23
	// 0 25 * * *
	//   ^
}

// runOnce runs a job once and stops.
func runOnce(fn schedule.Func, opts ...schedule.JobOption) *schedule.Scheduler {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	jobs, err := schedule.InMemory(schedule.WithOwner("host-a"), schedule.WithLogger(slog.New(slog.DiscardHandler)),
		schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Ended {
				cancel()
			}
		}))
	if err != nil {
		log.Fatal(err)
	}
	err = jobs.Add("report", schedule.Every(50*time.Millisecond), fn, opts...)
	if err != nil {
		log.Fatal(err)
	}
	if err := jobs.Run(ctx); err != nil {
		log.Fatal(err)
	}
	return jobs
}

func ExampleScheduler_Add() {
	runOnce(func(ctx context.Context, run schedule.Run) error {
		fmt.Println(run.Job, "attempt", run.Attempt, "lease held:", run.Lease.Err() == nil)
		return nil
	},
		schedule.MaxLate(6*time.Hour),
		schedule.With(mongolock.TTL(10*time.Second), mongolock.MaxHold(time.Hour)),
		schedule.Keep(100))
	// Output: report attempt 1 lease held: true
}

func ExampleScheduler_Run() {
	runOnce(func(context.Context, schedule.Run) error {
		fmt.Println("due")
		return nil
	})
	// Output: due
}

func ExampleScheduler_Job() {
	jobs := runOnce(func(context.Context, schedule.Run) error { return errors.New("no paper") })
	report, err := jobs.Job(context.Background(), "report")
	if err != nil {
		log.Fatal(err)
	}
	last := report.Past[0]
	fmt.Println(report.Plan, "- last run by", last.Owner, "-", last.Outcome, "-", last.Error)
	// Output: every 50ms - last run by host-a - failed - no paper
}

func ExampleScheduler_Jobs() {
	jobs := runOnce(func(context.Context, schedule.Run) error { return nil })
	for job, err := range jobs.Jobs(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.Job, job.Past[0].Outcome)
	}
	// Output: report succeeded
}

func ExampleScheduler_Remove() {
	jobs := runOnce(func(context.Context, schedule.Run) error { return nil })
	fmt.Println(jobs.Remove("report"), jobs.Remove("report"))
	// Output: true false
}

func ExampleScheduler_Forget() {
	jobs := runOnce(func(context.Context, schedule.Run) error { return nil })
	err := jobs.Forget(context.Background(), "report")
	job, _ := jobs.Job(context.Background(), "report")
	fmt.Println(err, job.Known)
	// Output: <nil> false
}

func ExampleWithEvents() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	jobs, err := schedule.InMemory(schedule.WithEvents(func(e schedule.Event) {
		fmt.Println(e.Kind, e.Job)
		if e.Kind == schedule.Ended {
			cancel()
		}
	}))
	if err != nil {
		log.Panic(err)
	}
	err = jobs.Add("report", schedule.Every(50*time.Millisecond), func(context.Context, schedule.Run) error { return nil })
	if err != nil {
		log.Panic(err)
	}
	if err := jobs.Run(ctx); err != nil {
		log.Panic(err)
	}
	// Output:
	// began report
	// ended report
}

// A resource that checks the token refuses the writes of a run that was paused past its
// lease: fence.UpdateOne(ctx, coll, run.Token(), …).
func ExampleRun_Token() {
	due := time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)
	first, repeated := schedule.Run{Due: due, Attempt: 1}, schedule.Run{Due: due, Attempt: 2}
	fmt.Println(first.Token() < repeated.Token())
	// Output: true
}

// An observer counts the runs by their ends, as a bridge to a metrics system does.
type counter map[string]int

func (c counter) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	return ctx, func(out mongolock.Outcome) {
		if of.Op == mongolock.OpRun {
			c[of.Key+" "+mongolock.OutcomeOf(out.Err)]++
		}
	}
}

func ExampleWithObserver() {
	ctx, cancel := context.WithCancel(context.Background())
	runs := counter{}
	jobs, err := schedule.InMemory(schedule.WithObserver(runs))
	if err != nil {
		log.Panic(err)
	}
	err = jobs.Add("report", schedule.Every(50*time.Millisecond), func(context.Context, schedule.Run) error {
		cancel()
		return nil
	})
	if err != nil {
		log.Panic(err)
	}
	if err := jobs.Run(ctx); err != nil {
		log.Panic(err)
	}
	fmt.Println(runs)
	// Output: map[report granted:1]
}

func ExampleScheduler_Stats() {
	jobs := runOnce(func(context.Context, schedule.Run) error { return nil })
	fmt.Println(jobs.Stats().Package, jobs.Stats().Held)
	// Output: schedule 0
}
