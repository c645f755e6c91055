package cronlock_test

import (
	"context"

	"fmt"
	"log"
	"log/slog"

	"github.com/robfig/cron/v3"

	"github.com/mongolock/mongolock"
	cronlock "github.com/mongolock/mongolock/adapters/cron"
	"github.com/mongolock/mongolock/store/memstore"
)

// A job with a context learns that its lease is lost, and that ctx ends.
func ExampleOnce_WrapContext() {
	client, err := mongolock.NewWithStore(memstore.New()) // on MongoDB: mongolock.New(coll)
	if err != nil {
		log.Fatal(err)
	}
	locked, err := cronlock.New(client, cronlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	job := cronlock.ContextFunc(func(ctx context.Context) error {
		stop() // the program is told to end
		fmt.Println("the job's context:", ctx.Err())
		return ctx.Err()
	})
	locked.WrapContext(ctx, "report")(job).Run()
	// Output: the job's context: context canceled
}

// Each job has a key of its own. A host that finds it held skips the run.
func ExampleNew() {
	client, err := mongolock.NewWithStore(memstore.New()) // on MongoDB: mongolock.New(coll)
	if err != nil {
		log.Fatal(err)
	}
	locked, err := cronlock.New(client)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Acquire(context.Background(), "report"); err != nil { // another host runs it
		log.Fatal(err)
	}
	locked.Wrap("report")(cron.FuncJob(func() { fmt.Println("report") })).Run()
	locked.Wrap("cleanup")(cron.FuncJob(func() { fmt.Println("cleanup") })).Run()
	// Output: cleanup
}
