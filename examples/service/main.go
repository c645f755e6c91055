// Command service has a job, two leaders, an outbox and partitions, and stops all of them on SIGTERM.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/schedule"
)

func main() {
	sigterm, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")))
	check(err)
	db := conn.Database("service")
	locks, err := mongolock.New(db.Collection("locks"))
	check(err)
	outbox, err := doclock.New[bson.M](db.Collection("outbox"))
	check(err)
	jobs, err := schedule.New(db.Collection("jobs"))
	check(err)
	unsent, oldest := bson.D{{Key: "state", Value: "new"}}, bson.D{{Key: "_id", Value: 1}}
	report := func(ctx context.Context, _ schedule.Run) error { return work(ctx, "report") }
	bill := func(ctx context.Context, _ leader.Term) error { return work(ctx, "billing") }
	mail := func(ctx context.Context, _ leader.Term) error { return work(ctx, "mail") }
	send := func(ctx context.Context, _ *doclock.Claimed[bson.M]) error { return work(ctx, "message") }
	consume := func(ctx context.Context, p assign.Partition) error { return work(ctx, fmt.Sprint("partition ", p.ID)) }
	check(jobs.Add("report", schedule.Cron("0 3 * * *"), report))
	all, ctx := errgroup.WithContext(sigterm) // ctx ends on SIGTERM, and when one of them fails
	all.Go(func() error { return jobs.Run(ctx) })
	all.Go(func() error { return leader.Run(ctx, locks, "billing", bill) })
	all.Go(func() error { return leader.Run(ctx, locks, "mail", mail) })
	all.Go(func() error { return outbox.Work(ctx, 4, unsent, oldest, send) })
	all.Go(func() error { return assign.Run(ctx, locks, "orders", 2, consume) })
	context.AfterFunc(ctx, func() {
		<-time.After(15 * time.Second) // of the 30 that Kubernetes gives: then work that hangs is left behind
		log.Fatal(errors.Join(errors.New("not stopped in time"), locks.Close(), outbox.Close()))
	})
	err = all.Wait() // each has given back what it had
	check(errors.Join(err, locks.Close(), outbox.Close(), conn.Disconnect(context.Background())))
}

func work(ctx context.Context, name string) error {
	fmt.Println(name)
	<-ctx.Done() // yours; it must return when ctx ends
	return ctx.Err()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
