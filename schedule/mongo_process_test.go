package schedule_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/testchild"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/schedule"
)

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{
		"ticks": testchild.As(ticks),
		"panic": testchild.As(panicking),
	})
}

const tick = 100 * time.Millisecond

// Every fire counts, also on a machine so busy that a run outlives its period.
var everyFire = []schedule.JobOption{
	schedule.OnMissed(schedule.All), schedule.OnOverlap(schedule.QueueAll), schedule.Keep(200),
}

// Five processes, 60 ticks, timers apart by up to nine tenths of the time between two:
// each of them runs once, and each run is a document. (A second between two, and 900
// ms, are in virtual time: TestFiveProcessesWhoseTimersAreApartRunEachTickOnce.)
func TestMongoFiveProcessesRunSixtyTicksOnce(t *testing.T) {
	testserver.URI(t, "atomic")
	t.Parallel()
	name := fresh()
	coll := collection(t, name)
	runs := coll.Database().Collection(name + "_runs")
	t.Cleanup(func() { _ = runs.Drop(context.Background()) })
	s, err := schedule.New(coll)
	if err != nil {
		t.Fatal(err)
	}
	first := beginTicking(t, s)
	last := first.Add(59 * tick)
	var all []*testchild.Process
	for i := range 5 {
		all = append(all, testchild.Start(t, "ticks", ticking{URI: testserver.URI(t), Collection: name, Name: fmt.Sprint("process-", i)}))
	}
	awaitDecided(t, s, last)
	asked := map[string]int{}
	for _, p := range all {
		p.End()
		var who string
		var n int
		if _, err := fmt.Sscanf(p.Says(), "%s asked %d times", &who, &n); err != nil || n == 0 {
			t.Errorf("%q asked %d times, %v", who, n, err)
		}
		asked[who] = n
	}
	counted := map[time.Time]int{}
	by := map[string]int{}
	for _, run := range documents(t, runs, bson.M{"fire": bson.M{"$gte": first, "$lte": last}}) {
		counted[run.Fire.UTC()]++
		by[run.By]++
	}
	for fire := first; !fire.After(last); fire = fire.Add(tick) {
		if counted[fire] != 1 {
			t.Errorf("fire %v ran %d times", fire.Format("05.000"), counted[fire])
		}
	}
	checkPast(t, s, first, last)
	t.Logf("runs by %v, fires asked for: %v", by, asked)
}

// beginTicking has the job claimed once, so that all know from where on each fire
// counts, however slow they are to start. It is the next one.
func beginTicking(t *testing.T, s *schedule.Scheduler) (first time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.Add("tick", schedule.Every(tick), func(_ context.Context, run schedule.Run) error {
		first = run.Fire.Add(tick)
		cancel()
		return nil
	}, everyFire...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ctx); err != nil || first.IsZero() {
		t.Fatalf("the job never ran: %v", err)
	}
	return first
}

func awaitDecided(t *testing.T, s *schedule.Scheduler, last time.Time) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(tick) {
		state, err := s.Job(t.Context(), "tick")
		if err == nil && state.Decided.After(last) && (len(state.Runs) == 0 || state.Runs[0].Fire.After(last)) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes: %+v, %v", state, err)
		}
	}
}

// checkPast looks whether what the job remembers is what happened.
func checkPast(t *testing.T, s *schedule.Scheduler, first, last time.Time) {
	t.Helper()
	state, err := s.Job(t.Context(), "tick")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[time.Time]bool{}
	for _, run := range state.Past { // in the order of their ends, which each process tells by its sample of the clock
		seen[run.Fire] = true
		if run.Outcome != schedule.Done && !run.Fire.After(last) || run.Began.Before(run.Fire) || run.Attempt != 1 {
			t.Errorf("in the past stands %+v", run)
		}
	}
	for fire := first; !fire.After(last); fire = fire.Add(tick) {
		if !seen[fire] {
			t.Errorf("the past has nothing of %v", fire)
		}
	}
}

type counted struct {
	Fire time.Time `bson:"fire"`
	By   string    `bson:"by"`
}

func documents(t *testing.T, coll *mongo.Collection, filter any) (all []counted) {
	t.Helper()
	cursor, err := coll.Find(t.Context(), filter)
	if err == nil {
		err = cursor.All(t.Context(), &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

type ticking struct{ URI, Collection, Name string }

// ticks runs the job until it is told to end, and then prints how often it asked.
func ticks(ctx context.Context, o ticking) error {
	client, err := mongo.Connect(testserver.Dialling(o.URI))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	db := client.Database("mongolock_schedule")
	asked := make(chan struct{}, 10_000)
	s, err := schedule.New(db.Collection(o.Collection), schedule.WithOwner(o.Name), schedule.WithJitter(tick*9/10),
		schedule.WithObserver(func(e schedule.Event) {
			if e.Kind == schedule.Began || e.Kind == schedule.Passed {
				asked <- struct{}{}
			}
		}))
	if err != nil {
		return err
	}
	err = s.Add("tick", schedule.Every(tick), func(ctx context.Context, run schedule.Run) error {
		// No _id: one that came twice would be there twice.
		_, err := db.Collection(o.Collection+"_runs").InsertOne(ctx, bson.M{"fire": run.Fire, "by": run.Owner})
		return err
	}, everyFire...)
	if err != nil {
		return err
	}
	err = s.Run(ctx)
	fmt.Println(o.Name, "asked", len(asked), "times")
	return err
}
