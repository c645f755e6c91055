package gocronlock_test

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

	"github.com/go-co-op/gocron/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	gocronlock "github.com/mongolock/mongolock/adapters/gocron"
	"github.com/mongolock/mongolock/internal/testchild"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

var quiet = slog.New(slog.DiscardHandler)

func host(t testing.TB, s *memstore.Store) *mongolock.Client {
	t.Helper()
	c, err := mongolock.NewWithStore(s, mongolock.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestOfThreeSchedulersOneRunsEachTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var runs atomic.Int32
		at := time.Now().Add(300 * time.Millisecond)
		for i := range 3 {
			locker, err := gocronlock.NewLocker(host(t, s), mongolock.MinHold(400*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			sched, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sched.Shutdown() })
			late := at.Add(time.Duration(i) * 100 * time.Millisecond) // as clocks of several hosts differ
			_, err = sched.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(func() { runs.Add(1) }), gocron.WithName("report"),
				gocron.WithStartAt(gocron.WithStartDateTime(late)))
			if err != nil {
				t.Fatal(err)
			}
			sched.Start()
		}
		time.Sleep(time.Until(at.Add(2500 * time.Millisecond))) // of the bubble: three ticks and half of one
		if n := runs.Load(); n != 3 {
			t.Errorf("3 ticks, %d runs", n)
		}
	})
}

// The control: a lock that is free when the job is done does not do.
func TestControlWithoutMinHoldALateHostRunsItAgain(t *testing.T) {
	s := memstore.New()
	locker, err := gocronlock.NewLocker(host(t, s))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		lock, err := locker.Lock(t.Context(), "report")
		if err != nil {
			t.Fatalf("the second host was kept out without MinHold: %v", err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLockIsATryAndUnlockWorksUnderACancelledContext(t *testing.T) {
	locks := mongolocktest.New(t)
	locker, err := gocronlock.NewLocker(locks)
	if err != nil {
		t.Fatal(err)
	}
	release := locks.Hold("report")
	began := time.Now()
	if _, err := locker.Lock(t.Context(), "report"); !errors.Is(err, mongolock.ErrHeld) || time.Since(began) > time.Second {
		t.Errorf("held: %v after %v", err, time.Since(began))
	}
	release()
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := locker.Lock(ctx, "report")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := lock.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if status, err := locks.Inspect(t.Context(), "report"); err != nil || !status.Free() {
		t.Errorf("not given back: %+v, %v", status, err)
	}
}

func TestWhatUnlockFailsWithIsLogged(t *testing.T) {
	locks := mongolocktest.New(t)
	var said strings.Builder
	locker, err := gocronlock.NewLocker(locks)
	if err != nil {
		t.Fatal(err)
	}
	locker.LogTo(slog.New(slog.NewTextHandler(&said, nil)))
	lock, err := locker.Lock(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	locks.Lose("report")
	if err := lock.Unlock(t.Context()); !errors.Is(err, mongolock.ErrLost) || !strings.Contains(said.String(), "lost under the job") {
		t.Errorf("%v, said %q", err, &said)
	}
}

func TestShutdownGivesTheLockOfARunningJobBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		locker, err := gocronlock.NewLocker(locks)
		if err != nil {
			t.Fatal(err)
		}
		sched, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			t.Fatal(err)
		}
		started := make(chan struct{}, 1)
		_, err = sched.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(func(ctx context.Context) { started <- struct{}{}; <-ctx.Done() }),
			gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartImmediately()))
		if err != nil {
			t.Fatal(err)
		}
		sched.Start()
		<-started
		if err := sched.Shutdown(); err != nil {
			t.Error(err)
		}
		synctest.Wait() // gocron does not wait for the Unlock
		if status, err := locks.Inspect(t.Context(), "report"); err != nil || !status.Free() {
			t.Errorf("not given back: %+v, %v", status, err)
		}
	})
}

func TestTheElectorRunsJobsWhereTheLeaderIsAndTheLockerIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var runs [2]atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 2)
		var candidates []*leader.Candidate
		for i := range runs {
			c, err := leader.New(host(t, s), "jobs")
			if err != nil {
				t.Fatal(err)
			}
			candidates = append(candidates, c)
			go func() {
				over <- c.Run(ctx, func(ctx context.Context, _ leader.Term) error { <-ctx.Done(); return nil })
			}()
			synctest.Wait() // the first leads, the second waits
			elector, err := gocronlock.NewElector(c)
			if err != nil {
				t.Fatal(err)
			}
			sched, err := gocron.NewScheduler(gocron.WithDistributedElector(elector), gocron.WithDistributedLocker(untouched{t}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sched.Shutdown() })
			if _, err := sched.NewJob(gocron.DurationJob(50*time.Millisecond), gocron.NewTask(func() { runs[i].Add(1) })); err != nil {
				t.Fatal(err)
			}
			sched.Start()
		}
		ran := func(first, second int32) {
			t.Helper()
			if n, m := runs[0].Swap(0), runs[1].Swap(0); n != first || m != second {
				t.Errorf("runs: %d of the first and %d of the second, want %d and %d", n, m, first, second)
			}
		}
		time.Sleep(525 * time.Millisecond) // of the bubble: ten runs and half of one
		ran(10, 0)
		if err := candidates[0].Resign(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(500 * time.Millisecond) // ten more
		ran(0, 10)
		cancel()
		for range runs {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
	})
}

type untouched struct{ t *testing.T }

func (u untouched) Lock(context.Context, string) (gocron.Lock, error) {
	u.t.Error("gocron asks the locker though it has an elector: the page says it does not")
	return nil, errors.New("no")
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	if _, err := gocronlock.NewLocker(nil); err == nil {
		t.Error("a nil locker")
	}
	if _, err := gocronlock.NewLocker(mongolocktest.New(t), nil); err == nil {
		t.Error("a nil option")
	}
	if _, err := gocronlock.NewElector(nil); err == nil {
		t.Error("a nil candidate")
	}
}

// Three processes with gocron's own timers, on a server: each tick is run once. Four
// ticks are eight seconds: hosts are told apart by half of one, on a busy machine too.
func TestThreeProcessesRunEachTickOnce(t *testing.T) {
	uri := testserver.URI(t)
	name := "gocron_" + rand.Text()[:8]
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
	first := time.Now().Add(time.Second)
	for _, h := range hosts {
		h.Tell(first.Format(time.RFC3339Nano))
	}
	time.Sleep(time.Until(first.Add((2*ticks - 1) * time.Second))) // the wall clock is gocron's
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

// runJobs is one host: a tick every two seconds from when it is told, locked for half of
// one.
func runJobs(ctx context.Context, o order) error {
	db, err := connect(o.URI, o.DB)
	if err != nil {
		return err
	}
	locks, err := mongolock.New(db.Collection("locks"))
	if err != nil {
		return err
	}
	locker, err := gocronlock.NewLocker(locks, mongolock.MinHold(time.Second))
	if err != nil {
		return err
	}
	sched, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	first, err := time.Parse(time.RFC3339Nano, <-testchild.Told(ctx))
	if err != nil {
		return err
	}
	_, err = sched.NewJob(gocron.DurationJob(2*time.Second), gocron.NewTask(func(ctx context.Context) error {
		_, err := db.Collection("runs").InsertOne(ctx, bson.M{"host": os.Getpid()})
		return err
	}), gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(first)))
	if err != nil {
		return err
	}
	sched.Start()
	<-ctx.Done()
	return errors.Join(sched.Shutdown(), locks.Close(), db.Client().Disconnect(context.Background()))
}

func ExampleNewLocker() {
	client, err := mongolock.NewWithStore(memstore.New()) // on MongoDB: mongolock.New(coll)
	if err != nil {
		log.Fatal(err)
	}
	locker, err := gocronlock.NewLocker(client, mongolock.MinHold(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(func() { fmt.Println("on one host"); close(done) }), gocron.WithName("report"))
	if err != nil {
		log.Fatal(err)
	}
	s.Start()
	<-done
	// Output: on one host
}

func ExampleNewElector() {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	candidate, err := leader.New(client, "jobs")
	if err != nil {
		log.Fatal(err)
	}
	elector, err := gocronlock.NewElector(candidate) // for gocron.WithDistributedElector
	fmt.Println(elector.IsLeader(context.Background()), err)
	// Output: gocronlock: another host leads <nil>
}
