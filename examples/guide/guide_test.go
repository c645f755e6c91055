// Package guide holds the programs of docs/guide.md and docs/migrating.md. They run on
// whatever MongoDB the machine has.
package guide

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/examples/internal/anyserver"
	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
)

var uri string

func TestMain(m *testing.M) { os.Exit(anyserver.Main(m, &uri)) }

// check stands for the error handling of your program.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A process is what each process of your program has: a connection, and a client.
type process struct {
	db    *mongo.Database
	locks *mongolock.Client
}

// two returns two processes that share a database, and a function that ends both.
func two() (here, there process, end func()) {
	name := "guide_" + rand.Text()[:8]
	here, there = open(name, "here"), open(name, "there")
	return here, there, func() {
		for _, p := range []process{here, there} {
			check(p.locks.Close())
		}
		check(here.db.Drop(context.Background()))
		for _, p := range []process{here, there} {
			check(p.db.Client().Disconnect(context.Background()))
		}
	}
}

func open(database, owner string) process {
	db, err := mongo.Connect(options.Client().ApplyURI(uri))
	check(err)
	quiet := slog.New(slog.DiscardHandler)
	locks, err := mongolock.New(db.Database(database).Collection("locks"), mongolock.WithOwner(owner), mongolock.WithLogger(quiet), mongolock.TTL(pace.Of(2*time.Second)))
	check(err)
	return process{db.Database(database), locks}
}

func report(ctx context.Context) error {
	fmt.Println("writing the report")
	return ctx.Err()
}

func Example_skip() {
	ctx := context.Background()
	here, there, end := two()
	defer end()
	locks := here.locks
	other, err := there.locks.Acquire(ctx, "report")
	check(err)

	for range 2 {
		ran, err := mongolock.TryDo(ctx, locks, "report", func(ctx context.Context, lease *mongolock.Lease) error {
			return report(ctx)
		})
		switch {
		case err != nil:
			log.Print("report: ", err)
		case !ran:
			fmt.Println("another process is writing it")
		}
		check(other.Release())
	}
	// Output:
	// another process is writing it
	// writing the report
}

func Example_who() {
	ctx := context.Background()
	here, there, end := two()
	defer end()
	locks := here.locks
	_, err := there.locks.Acquire(ctx, "report", mongolock.Note("the monthly one"))
	check(err)

	_, err = locks.TryAcquire(ctx, "report")
	var held *mongolock.HeldError
	if errors.As(err, &held) {
		for _, h := range held.Holders {
			fmt.Println(h.Owner, "has it:", h.Note)
		}
	}
	// Output: there has it: the monthly one
}

func Example_hold() {
	ctx := context.Background()
	here, _, end := two()
	defer end()
	locks := here.locks

	lease, err := locks.Acquire(ctx, "import", mongolock.TTL(time.Minute), mongolock.MaxWait(10*time.Second))
	if errors.Is(err, mongolock.ErrHeld) {
		fmt.Println("still taken after 10 seconds")
		return
	}
	check(err)
	defer lease.Release()

	work := lease.Context(ctx) // ends when the lease does
	fmt.Println("importing:", work.Err() == nil)
	// Output: importing: true
}

func Example_lost() {
	ctx := context.Background()
	here, there, end := two()
	defer end()
	locks, operator := here.locks, there.locks
	started := make(chan struct{})
	go func() {
		<-started
		_, err := operator.Break(ctx, "import", "the disk is full", -1)
		check(err)
	}()

	err := mongolock.Do(ctx, locks, "import", func(ctx context.Context, lease *mongolock.Lease) error {
		close(started)
		<-ctx.Done() // hours of work that checks ctx now and then
		fmt.Println("stopped")
		return context.Cause(ctx)
	})
	fmt.Println(errors.Is(err, mongolock.ErrLost), errors.Is(err, mongolock.ErrBroken))
	// Output:
	// stopped
	// true true
}

func Example_readers() {
	ctx := context.Background()
	here, there, end := two()
	defer end()
	locks, others := here.locks, there.locks

	reading, err := locks.Acquire(ctx, "catalogue", mongolock.Shared())
	check(err)
	also, err := others.Acquire(ctx, "catalogue", mongolock.Shared())
	check(err)

	_, err = others.TryAcquire(ctx, "catalogue") // without Shared: a writer
	fmt.Println("a writer waits for both:", errors.Is(err, mongolock.ErrHeld))
	check(errors.Join(reading.Release(), also.Release()))
	// Output: a writer waits for both: true
}

func Example_rollingDeploy() {
	ctx := context.Background()
	here, there, end := two()
	defer end()
	locks, others := here.locks, there.locks

	one, err := locks.Acquire(ctx, "smtp", mongolock.OneOf(1)) // the old version
	check(err)
	two, err := others.Acquire(ctx, "smtp", mongolock.OneOf(2)) // the new one, beside it
	check(err)

	_, err = locks.TryAcquire(ctx, "smtp", mongolock.OneOf(1)) // back: it waits until no permit is taken
	fmt.Println("its own number counts:", errors.Is(err, mongolock.ErrHeld))
	check(errors.Join(one.Release(), two.Release()))
	// Output: its own number counts: true
}

func Example_fence() {
	ctx := context.Background()
	here, there, end := two()
	defer end()
	reports := here.db.Collection("reports")
	_, err := reports.InsertOne(ctx, bson.M{"_id": "today"})
	check(err)
	// The lease of a process that is paused is not renewed, and runs out.
	paused, err := there.locks.Acquire(ctx, "report", mongolock.NoRenewal())
	check(err)
	slow := paused.Token()
	locks := here.locks

	err = mongolock.Do(ctx, locks, "report", func(ctx context.Context, lease *mongolock.Lease) error {
		_, err := fence.UpdateByID(ctx, reports, lease.Token(), "today", bson.M{"$set": bson.M{"total": 42}})
		return err
	})
	check(err)

	// The paused process resumes, and does not know that its lease has ended.
	_, err = fence.UpdateByID(ctx, reports, slow, "today", bson.M{"$set": bson.M{"total": 41}})
	fmt.Println("refused:", errors.Is(err, fence.ErrFenced))
	// Output: refused: true
}

func Example_stop() {
	here, _, end := two()
	defer end()
	locks := here.locks
	lease, err := locks.Acquire(context.Background(), "import")
	check(err)
	go func() {
		time.Sleep(50 * time.Millisecond) // the rest of the work
		check(lease.Release())
	}()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := locks.Shutdown(ctx); err != nil { // waits until all leases are released
		log.Print(err)
	}
	fmt.Println("nothing is held")
	// Output: nothing is held
}
