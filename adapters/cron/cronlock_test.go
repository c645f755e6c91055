package cronlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	cronlock "github.com/mongolock/mongolock/adapters/cron"
	"github.com/mongolock/mongolock/internal/testchild"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestOfThreeHostsOneRunsEachTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var runs atomic.Int32
		time.Sleep(500 * time.Millisecond) // between two ticks
		for range 3 {
			client, err := mongolock.NewWithStore(s)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			})
			once, err := cronlock.New(client, mongolock.MinHold(500*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			c := cron.New(cron.WithSeconds())
			if _, err := c.AddJob("* * * * * *", once.Wrap("report")(cron.FuncJob(func() { runs.Add(1) }))); err != nil {
				t.Fatal(err)
			}
			c.Start()
			t.Cleanup(func() { <-c.Stop().Done() })
		}
		time.Sleep(3 * time.Second) // of the bubble: three ticks
		if n := runs.Load(); n != 3 {
			t.Errorf("3 ticks, %d runs", n)
		}
	})
}

func TestAHeldKeySkipsTheRunAndAPanicGivesItBack(t *testing.T) {
	locks := mongolocktest.New(t)
	var said strings.Builder
	once, err := cronlock.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	once.LogTo(slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ran := 0
	job := once.Wrap("report")(cron.FuncJob(func() { ran++ }))
	release := locks.Hold("report")
	job.Run()
	if ran != 0 || !strings.Contains(said.String(), "another host is at it") {
		t.Errorf("ran %d times, said %q", ran, &said)
	}
	release()
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("not the panic")
			}
		}()
		once.Wrap("report")(cron.FuncJob(func() { panic("boom") })).Run()
	}()
	job.Run()
	if ran != 1 {
		t.Errorf("ran %d times", ran)
	}
}

func TestAContextJobLearnsThatItsLeaseIsLost(t *testing.T) {
	locks := mongolocktest.New(t)
	var said strings.Builder
	once, err := cronlock.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	once.LogTo(slog.New(slog.NewTextHandler(&said, nil)))
	once.Wrap("report")(cronlock.ContextFunc(func(ctx context.Context) error {
		locks.Lose("report")
		<-ctx.Done()
		return ctx.Err()
	})).Run()
	if !strings.Contains(said.String(), "lease is lost") {
		t.Errorf("said %q", &said)
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	if _, err := cronlock.New(nil); err == nil {
		t.Error("a nil locker")
	}
	if _, err := cronlock.New(mongolocktest.New(t), nil); err == nil {
		t.Error("a nil option")
	}
}

// Three processes with cron's own timers, on a server: each tick is run once. Four ticks
// are eight seconds: hosts are told apart by half of one, on a busy machine too.
func TestThreeProcessesRunEachTickOnce(t *testing.T) {
	uri := testserver.URI(t)
	name := "cron_" + rand.Text()[:8]
	db, err := connect(uri, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Drop(context.Background())
		_ = db.Client().Disconnect(context.Background())
	})
	var hosts []*testchild.Process
	for range 3 {
		hosts = append(hosts, testchild.Start(t, "host", order{uri, name}))
	}
	for _, h := range hosts {
		h.Says() // it is ready
	}
	from := time.Now().Truncate(2 * time.Second).Add(3 * time.Second) // odd: between two ticks
	time.Sleep(time.Until(from))                                      // the wall clock is cron's
	for _, h := range hosts {
		h.Tell("go")
	}
	time.Sleep(2 * ticks * time.Second) // what the ticks take
	for _, h := range hosts {
		h.End()
	}
	n, err := db.Collection("runs").CountDocuments(t.Context(), bson.M{})
	if n != ticks || err != nil {
		t.Errorf("%d ticks, %d runs, %v", ticks, n, err)
	}
}

const ticks = 4

// An order tells a host its database.
type order struct{ URI, DB string }

func connect(uri, name string) (*mongo.Database, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	return client.Database(name), nil
}

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{"host": testchild.As(runJobs)})
}

// runJobs is one host: a tick every two seconds, locked for one.
func runJobs(ctx context.Context, o order) error {
	db, err := connect(o.URI, o.DB)
	if err != nil {
		return err
	}
	locks, err := mongolock.New(db.Collection("locks"))
	if err != nil {
		return err
	}
	once, err := cronlock.New(locks, mongolock.MinHold(time.Second))
	if err != nil {
		return err
	}
	c := cron.New(cron.WithSeconds())
	_, err = c.AddJob("*/2 * * * * *", once.Wrap("report")(cronlock.ContextFunc(func(ctx context.Context) error {
		_, err := db.Collection("runs").InsertOne(ctx, bson.M{"host": os.Getpid()})
		return err
	})))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	<-testchild.Told(ctx)
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	return errors.Join(locks.Close(), db.Client().Disconnect(context.Background()))
}

func ExampleOnce_Wrap() {
	client, err := mongolock.NewWithStore(memstore.New()) // on MongoDB: mongolock.New(coll)
	if err != nil {
		log.Fatal(err)
	}
	once, err := cronlock.New(client, mongolock.MinHold(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	report := once.Wrap("report")(cron.FuncJob(func() { fmt.Println("on one host") }))
	if _, err := cron.New().AddJob("0 3 * * *", report); err != nil {
		log.Fatal(err)
	}
	report.Run()
	report.Run() // a host whose clock is late
	// Output: on one host
}
