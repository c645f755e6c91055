package schedule_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store"
)

// needs skips a test that needs what the server here does not have, or fails it if
// MONGOLOCK_REQUIRE lists that.
func needs(t testing.TB, capabilities ...string) {
	t.Helper()
	listed := func(variable, what string) bool {
		return slices.Contains(strings.Split(os.Getenv(variable), ","), what)
	}
	for _, c := range append([]string{"mongodb"}, capabilities...) {
		has := listed("MONGOLOCK_HAS", c) || c == "mongodb" && os.Getenv("MONGODB_URI") != ""
		switch {
		case has:
		case listed("MONGOLOCK_REQUIRE", c):
			t.Fatalf("needs %s, which MONGOLOCK_REQUIRE lists and the server here does not have", c)
		default:
			t.Skipf("needs %s", c)
		}
	}
}

// collection is one of its own on the server, seen by a process of its own.
func collection(t testing.TB, name string, opts ...*options.ClientOptions) *mongo.Collection {
	t.Helper()
	opts = append([]*options.ClientOptions{options.Client().ApplyURI(os.Getenv("MONGODB_URI"))}, opts...)
	client, err := mongo.Connect(opts...)
	if err != nil {
		t.Fatal(err)
	}
	coll := client.Database("mongolock_schedule").Collection(name)
	t.Cleanup(func() {
		_ = coll.Drop(context.Background())
		client.Disconnect(context.Background())
	})
	return coll
}

func fresh() string { return "jobs_" + rand.Text()[:10] }

func TestMongoKeepsTheContract(t *testing.T) {
	needs(t)
	s := schedule.NewMongo(collection(t, fresh()))
	for name, claim := range claims {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "many at once") {
				needs(t, "atomic")
			}
			claim(newBench(t, s, 600*time.Millisecond))
		})
	}
}

// A tap counts the commands that a client sends, but for those of the driver's own.
type tap struct {
	mu   sync.Mutex
	sent []string
}

func (c *tap) option() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.DatabaseName == "admin" {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = append(c.sent, e.CommandName)
	}})
}

func (c *tap) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.sent
	c.sent = nil
	return was
}

func TestMongoAClaimIsOneCommandWonOrLost(t *testing.T) {
	needs(t)
	name := fresh()
	var one, two tap
	winner, loser := schedule.NewMongo(collection(t, name, one.option())), schedule.NewMongo(collection(t, name, two.option()))
	b := newBench(t, winner, time.Second)
	for _, s := range []schedule.Store{winner, loser} { // as Run begins
		if _, err := s.Look(b.ctx(), []string{b.job}); err != nil {
			t.Fatal(err)
		}
	}
	one.take()
	two.take()
	for n := 1; n <= 3; n++ {
		c := b.ask(n)
		won := b.won(c)
		if got := one.take(); !slices.Equal(got, []string{"findAndModify"}) {
			t.Errorf("won by %q", got)
		}
		if _, err := loser.Claim(b.ctx(), b.ask(n)); !errors.Is(err, schedule.ErrNotDue) {
			t.Error(err)
		}
		if got := two.take(); !slices.Equal(got, []string{"findAndModify"}) {
			t.Errorf("lost by %q", got)
		}
		b.finish(c, won)
		if got := one.take(); !slices.Equal(got, []string{"findAndModify"}) {
			t.Errorf("ended by %q", got)
		}
	}
}

func TestMongoBetweenFiresNothingIsSent(t *testing.T) {
	needs(t)
	var c tap
	s, err := schedule.New(collection(t, fresh(), c.option()), schedule.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan time.Time, 10)
	for i := range 20 {
		plan := schedule.Every(24 * time.Hour)
		if i == 0 {
			plan = schedule.Every(2 * time.Second)
		}
		if err := s.Add(fmt.Sprint("job-", i), plan, func(context.Context, schedule.Run) error { ran <- time.Now(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	<-ran
	time.Sleep(500 * time.Millisecond)
	if got := c.take(); !slices.Equal(got, []string{"find", "hello", "findAndModify", "findAndModify"}) {
		t.Errorf("up to the first fire it sent %q", got)
	}
	time.Sleep(time.Second)
	if got := c.take(); len(got) != 0 {
		t.Errorf("between fires it sent %q", got)
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestMongoAStrangersDocumentIsRefused(t *testing.T) {
	needs(t)
	coll := collection(t, fresh())
	if _, err := coll.InsertOne(t.Context(), bson.M{"_id": "job", "schedule": 2, "decided": time.Now()}); err != nil {
		t.Fatal(err)
	}
	s, err := schedule.New(coll)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add("job", schedule.Every(time.Second), func(context.Context, schedule.Run) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"job"`) {
		t.Errorf("run: %v", err)
	}
	if _, err := s.Job(t.Context(), "job"); !errors.Is(err, store.ErrForeign) {
		t.Errorf("job: %v", err)
	}
	if n, err := coll.CountDocuments(t.Context(), bson.M{"_id": "job", "schedule": 2}); n != 1 || err != nil {
		t.Errorf("left of it: %d, %v", n, err)
	}
}

// Five processes, 15 ticks of a second, timers up to 900 ms apart: each of them runs
// once, and each run is a document.
func TestMongoFiveProcessesRunFifteenTicksOnce(t *testing.T) {
	needs(t, "atomic")
	name := fresh()
	coll := collection(t, name)
	begin := time.Now().Add(3 * time.Second).Truncate(time.Second)
	end := begin.Add(15 * time.Second) // after that fire
	var all []*exec.Cmd
	for i := range 5 {
		cmd := child(t, "ticks", ticking{name, fmt.Sprint("process-", i), end})
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	s := schedule.NewMongo(coll)
	states, err := s.Look(t.Context(), []string{"tick"})
	if err != nil {
		t.Fatal(err)
	}
	past := states[0].Past
	by := map[string]int{}
	for i, run := range past {
		by[run.Owner]++
		if i > 0 && !run.Fire.Equal(past[i-1].Fire.Add(-time.Second)) {
			t.Errorf("fire %v is followed by %v", run.Fire, past[i-1].Fire)
		}
		if run.Outcome != schedule.Done || run.Began.Before(run.Fire) {
			t.Errorf("%+v", run)
		}
	}
	counted, err := coll.Database().Collection(name+"_runs").CountDocuments(t.Context(), bson.M{"fire": bson.M{"$gt": begin, "$lte": end}})
	if err != nil || counted != 15 {
		t.Errorf("15 ticks, %d runs, %v", counted, err)
	}
	t.Logf("runs by %v", by)
	_ = coll.Database().Collection(name + "_runs").Drop(t.Context())
}

type ticking struct {
	Collection, Name string
	End              time.Time
}

func ticks(o ticking) error {
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	if err != nil {
		return err
	}
	ctx := context.Background()
	defer client.Disconnect(ctx)
	db := client.Database("mongolock_schedule")
	s, err := schedule.New(db.Collection(o.Collection), schedule.WithOwner(o.Name), schedule.WithJitter(900*time.Millisecond))
	if err != nil {
		return err
	}
	err = s.Add("tick", schedule.Every(time.Second), func(ctx context.Context, run schedule.Run) error {
		// No _id: one that came twice would be there twice.
		_, err := db.Collection(o.Collection+"_runs").InsertOne(ctx, bson.M{"fire": run.Fire, "by": run.Owner})
		return err
	}, schedule.OnMissed(schedule.All), schedule.Keep(30))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, o.End.Add(2900*time.Millisecond))
	defer cancel()
	return s.Run(ctx)
}

// What this test binary does as a child.
const (
	childIs    = "MONGOLOCK_SCHEDULE_CHILD"
	childOrder = "MONGOLOCK_SCHEDULE_ORDER"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(childIs) {
	case "ticks":
		var o ticking
		if err = json.Unmarshal([]byte(os.Getenv(childOrder)), &o); err == nil {
			err = ticks(o)
		}
	case "panic":
		err = panicking()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(t testing.TB, is string, order any) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childIs+"="+is, childOrder+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd
}

// panicking prints what is known of a job that panics, while it does.
func panicking() error {
	s := schedule.NewMemory()
	jobs, err := schedule.NewWithStore(tells{s})
	if err != nil {
		return err
	}
	err = jobs.Add("job", schedule.Every(100*time.Millisecond), func(context.Context, schedule.Run) error { panicHere(); return nil })
	if err != nil {
		return err
	}
	return jobs.Run(context.Background())
}

func panicHere() { panic("the job's own words") }

type tells struct{ *schedule.Memory }

func (s tells) Finish(ctx context.Context, e schedule.End) error {
	err := s.Memory.Finish(ctx, e)
	all, _ := s.Look(ctx, []string{e.Job})
	fmt.Printf("busy %q, %d under way, past: %s %s\n", all[0].Busy, len(all[0].Runs), all[0].Past[0].Outcome, all[0].Past[0].Error)
	return err
}

func TestAPanicIsRecordedAndTheJobFreedAndThenItGoesOn(t *testing.T) {
	cmd := child(t, "panic", nil)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 {
		t.Errorf("it ended with %v", err)
	}
	for _, want := range []string{
		"busy \"\", 0 under way, past: panicked the job's own words\n",
		"panic: the job's own words",
		"schedule_test.panicHere(", // the frame that panicked is on the trace
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("not said: %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", &said)
	}
}
