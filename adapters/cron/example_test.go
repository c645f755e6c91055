package cronlock_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

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
	once, err := cronlock.New(client, cronlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	job := cronlock.ContextFunc(func(ctx context.Context) error {
		stop() // the program is told to end
		fmt.Println("the job's context:", ctx.Err())
		return ctx.Err()
	})
	once.WrapContext(ctx, "report")(job).Run()
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
	// Output: cronlock: With(OneOf(3)): several hosts would run the job at the same time
}
