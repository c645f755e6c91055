package gocronlock_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/mongolock/mongolock"
	gocronlock "github.com/mongolock/mongolock/adapters/gocron"
	"github.com/mongolock/mongolock/store/memstore"
)

// The options are those of each run's lease. Those with which several hosts would run the job are refused.
func ExampleWith() {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(memstore.New()) // on MongoDB: mongolock.New(coll)
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	locker, err := gocronlock.NewLocker(client, gocronlock.With(mongolock.Note("version 7")))
	if err != nil {
		log.Panic(err)
	}
	run, err := locker.Lock(ctx, "report") // as gocron does
	if err != nil {
		log.Panic(err)
	}
	status, err := client.Inspect(ctx, "report")
	fmt.Println(status.Holders[0].Note, err)
	fmt.Println(run.Unlock(ctx))

	_, err = gocronlock.NewLocker(client, gocronlock.With(mongolock.Shared()))
	fmt.Println(err)
	// Output:
	// version 7 <nil>
	// <nil>
	// gocronlock: With(Shared()): several hosts would run the job at the same time
}

// gocron drops the errors of an unlock, so they are logged.
func ExampleWithLogger() {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.LevelKey || a.Key == slog.MessageKey {
			return a
		}
		return slog.Attr{}
	}}))
	locker, err := gocronlock.NewLocker(client, gocronlock.WithLogger(logger))
	if err != nil {
		log.Panic(err)
	}
	run, err := locker.Lock(ctx, "report")
	if err != nil {
		log.Panic(err)
	}
	if _, err := client.Break(ctx, "report", "the job hangs", 0); err != nil {
		log.Panic(err)
	}
	_ = run.Unlock(ctx)
	// Output: level=WARN msg="gocronlock: the lease was lost while the job ran"
}
