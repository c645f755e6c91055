// Package testticks tests that three processes with a scheduler run each tick once.
// The adapters use it: they differ only in the scheduler that a process starts.
//
//	func TestMain(m *testing.M) {
//		testchild.Main(m, testchild.Roles{testticks.Role: testticks.Child(startScheduler)})
//	}
//
//	func TestThreeProcessesRunEachTickOnce(t *testing.T) { testticks.EachRunsOnce(t, "cron") }
package testticks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

const (
	// Role is the role of the processes.
	Role = "host"

	// Apart is the time between two ticks. Ticks are at multiples of it by the wall
	// clock, which is what schedulers go by.
	Apart = 2 * time.Second

	processes = 3
	ticks     = 4
)

// A Host is what one process has: a client on the shared database, and its part in
// the test.
type Host struct {
	Locks *mongolock.Client
	First time.Time // the first tick; the scheduler must start before it

	runs *mongo.Collection
}

// Ran records a run of the job.
func (h *Host) Ran(ctx context.Context) error {
	_, err := h.runs.InsertOne(ctx, bson.M{"process": os.Getpid()})
	return err
}

// EachRunsOnce starts the processes on the server of the tests, and counts their runs.
func EachRunsOnce(t *testing.T, name string) {
	t.Helper()
	o := order{URI: testserver.URI(t), DB: name + "_" + rand.Text()[:8]}
	db, err := o.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Drop(context.Background())
		_ = db.Client().Disconnect(context.Background())
	})
	var hosts []*testchild.Process
	for range processes {
		hosts = append(hosts, testchild.Start(t, Role, o))
	}
	for _, h := range hosts {
		h.Says() // it is ready
	}
	// The schedulers start halfway between two ticks, and end halfway between two: a
	// busy machine has half of Apart to be late.
	first := time.Now().Truncate(Apart).Add(2 * Apart)
	time.Sleep(time.Until(first.Add(-Apart / 2)))
	for _, h := range hosts {
		h.Tell(first.Format(time.RFC3339Nano))
	}
	time.Sleep(time.Until(first.Add(ticks*Apart - Apart/2)))
	for _, h := range hosts {
		h.End()
	}
	n, err := db.Collection("runs").CountDocuments(context.Background(), bson.M{})
	if n != ticks || err != nil {
		t.Errorf("%d ticks in %d processes, and %d runs (%v)", ticks, processes, n, err)
	}
}

// An order tells a child its database.
type order struct{ URI, DB string }

func (o order) connect() (*mongo.Database, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(o.URI))
	if err != nil {
		return nil, err
	}
	return client.Database(o.DB), nil
}

// Child makes the role of a process. It calls start, which returns at once, shortly
// before the first tick, and stop when the process has to end.
func Child(start func(h *Host) (stop func() error, err error)) testchild.Role {
	return testchild.As(func(ctx context.Context, o order) error {
		db, err := o.connect()
		if err != nil {
			return err
		}
		h := &Host{runs: db.Collection("runs")}
		if h.Locks, err = mongolock.New(db.Collection("locks")); err != nil {
			return err
		}
		fmt.Println("ready")
		if h.First, err = time.Parse(time.RFC3339Nano, <-testchild.Told(ctx)); err != nil {
			return err
		}
		stop, err := start(h)
		if err != nil {
			return err
		}
		<-ctx.Done()
		return errors.Join(stop(), h.Locks.Close(), db.Client().Disconnect(context.Background()))
	})
}
