package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"

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

// Options with which several hosts would run a job are refused.
func ExampleWith() {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	_, err = cronlock.New(client, cronlock.With(mongolock.OneOf(3)))
	fmt.Println(err)
	// Output: cronlock: With(OneOf): several hosts would run the job at the same time
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

// A job that fails is logged, because cron knows no errors.
func ExampleWithLogger() {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	once, err := cronlock.New(client, cronlock.WithLogger(logger))
	if err != nil {
		log.Fatal(err)
	}
	once.WrapContext(context.Background(), "report")(cronlock.ContextFunc(func(context.Context) error {
		return errors.New("disk full")
	})).Run()
	// Output: level=WARN msg="cronlock: the job or its lock failed" key=report ran=true error="disk full"
}
