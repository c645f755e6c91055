// Command nightly writes a report at three o'clock each night, on one of the hosts that run it.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/schedule"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	uri := cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")
	if err := run(ctx, uri); err != nil {
		log.Fatal(err) //nolint:gocritic // the process ends
	}
}

func run(ctx context.Context, uri string) error {
	conn, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer conn.Disconnect(context.Background()) // ctx has ended

	jobs, err := schedule.New(conn.Database("mongolock").Collection("jobs"))
	if err != nil {
		return err
	}
	plan := schedule.Cron("CRON_TZ=Europe/Berlin 0 3 * * *") // without CRON_TZ: in UTC
	err = jobs.Add("nightly-report", plan, report,
		schedule.Retry(5, time.Minute), // a report that fails: after 1, 2, 4, 8 and 16 minutes
		schedule.MaxLate(6*time.Hour))  // no process ran at three: the next that starts before nine
	if err != nil {
		return err
	}
	return jobs.Run(ctx) // until ctx ends
}

// report must return when ctx ends: then the process is told to stop, or has lost the run.
func report(ctx context.Context, run schedule.Run) error {
	fmt.Println("writing the report, attempt", run.Attempt)
	return ctx.Err()
}
