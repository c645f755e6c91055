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

func ExamplePlan() {
	now := time.Date(2026, 5, 1, 9, 50, 0, 0, time.UTC)
	for _, plan := range []schedule.Plan{
		schedule.Every(15 * time.Minute),
		schedule.Cron("0 3 * * *"),
		schedule.Cron("CRON_TZ=Europe/Berlin 0 3 * * *"),
		schedule.Cron("@hourly"),
		schedule.At(time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC)),
	} {
		fmt.Println(plan, "-", plan.Next(now).Format(time.RFC3339))
	}
	// Output:
	// every 15m0s - 2026-05-01T10:00:00Z
	// cron 0 3 * * * - 2026-05-02T03:00:00Z
	// cron CRON_TZ=Europe/Berlin 0 3 * * * - 2026-05-02T01:00:00Z
	// cron @hourly - 2026-05-01T10:00:00Z
	// at 2026-12-31T23:00:00Z - 2026-12-31T23:00:00Z
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

// Events tell of each run while it goes on; Job shows the last ones, and those of other processes.
func ExampleScheduler_Job() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	jobs, err := schedule.InMemory(schedule.WithOwner("host-a"), schedule.WithLogger(slog.New(slog.DiscardHandler)),
		schedule.WithEvents(func(e schedule.Event) {
			fmt.Println(e.Kind, e.Job)
			if e.Kind == schedule.Ended {
				cancel()
			}
		}))
	if err != nil {
		log.Panic(err)
	}
	err = jobs.Add("report", schedule.Every(50*time.Millisecond), func(context.Context, schedule.Run) error {
		return errors.New("no paper")
	})
	if err != nil {
		log.Panic(err)
	}
	if err := jobs.Run(ctx); err != nil {
		log.Panic(err)
	}
	report, err := jobs.Job(context.Background(), "report")
	if err != nil {
		log.Panic(err)
	}
	last := report.Past[0]
	fmt.Println(report.Plan, "- last run by", last.Owner, "-", last.Outcome, "-", last.Error)
	// Output:
	// began report
	// ended report
	// every 50ms - last run by host-a - failed - no paper
}

// A run that failed is repeated, with a greater token. A resource that checks the token refuses the writes of
// an attempt that was paused past its lease: fence.UpdateOne(ctx, coll, run.Token(), …).
func ExampleRetry() {
	var last int64
	runs(2, inMemory(), func(_ context.Context, run schedule.Run) error {
		fmt.Println("attempt", run.Attempt, run.Token() > last)
		if last = run.Token(); run.Attempt == 1 {
			return errors.New("no paper")
		}
		return nil
	}, schedule.Retry(3, 10*time.Millisecond))
	// Output:
	// attempt 1 true
	// attempt 2 true
}

// inMemory makes a Scheduler as a process on MongoDB would with schedule.New.
func inMemory() *schedule.Scheduler {
	jobs, err := schedule.InMemory(schedule.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Panic(err)
	}
	return jobs
}

// runs has a job run n times, and the Scheduler stop.
func runs(n int, jobs *schedule.Scheduler, fn schedule.Func, opts ...schedule.JobOption) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	jobs.Remove("report")
	err := jobs.Add("report", schedule.Every(50*time.Millisecond), func(ctx context.Context, run schedule.Run) error {
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
