package schedule_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/schedule"
)

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{
		"ticks": testchild.As(ticks),
		"panic": testchild.As(panicking),
	})
}

const tick = 100 * time.Millisecond

// everyFire has each fire run, also on a machine so busy that a run takes longer than the
// period.
var everyFire = []schedule.JobOption{
	schedule.Each(), schedule.Keep(200),
}

// Five processes share 60 ticks. Their timers are apart by up to nine tenths of a period.
// Each tick runs once, and each run inserts a document. (Virtual time has the same with
// ticks a second apart: TestFiveProcessesWhoseTimersAreApartRunEachTickOnce.)
func TestMongoFiveProcessesRunSixtyTicksOnce(t *testing.T) {
	testserver.URI(t, "atomic")
	t.Parallel()
	name := fresh()
	coll := collection(t, name)
	runs := coll.Database().Collection(name + "_runs")
	t.Cleanup(func() { _ = runs.Drop(context.Background()) })
	s, err := schedule.New(coll)
	require.NoError(t, err)
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
		_, err := fmt.Sscanf(p.Says(), "%s asked %d times", &who, &n)
		require.NoError(t, err)
		assert.NotZero(t, n, "fires that %s asked for", who)
		asked[who] = n
	}
	counted := map[time.Time]int{}
	by := map[string]int{}
	for _, run := range documents(t, runs, bson.M{"due": bson.M{"$gte": first, "$lte": last}}) {
		counted[run.Due.UTC()]++
		by[run.By]++
	}
	for fire := first; !fire.After(last); fire = fire.Add(tick) {
		assert.Equal(t, 1, counted[fire], "runs of fire %v", fire.Format("05.000"))
	}
	checkPast(t, s, first, last)
	t.Logf("runs by %v, fires asked for: %v", by, asked)
}

// beginTicking has the job claimed once. From the next fire on each one counts, however
// slow the processes are to start.
func beginTicking(t *testing.T, s *schedule.Scheduler) (first time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.Add("tick", schedule.Every(tick), func(_ context.Context, run schedule.Run) error {
		first = run.Due.Add(tick)
		cancel()
		return nil
	}, everyFire...)
	require.NoError(t, err)
	require.NoError(t, s.Run(ctx))
	require.False(t, first.IsZero(), "the job never ran")
	return first
}

func awaitDecided(t *testing.T, s *schedule.Scheduler, last time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		state, err := s.Job(t.Context(), "tick")
		return err == nil && state.Decided.After(last) && (len(state.Runs) == 0 || state.Runs[0].Due.After(last))
	}, 2*time.Minute, tick)
}

// checkPast checks that the job remembers each run as it was.
func checkPast(t *testing.T, s *schedule.Scheduler, first, last time.Time) {
	t.Helper()
	state, err := s.Job(t.Context(), "tick")
	require.NoError(t, err)
	seen := map[time.Time]bool{}
	for _, run := range state.Past { // sorted by their ends, which each process tells by its sample of the clock
		seen[run.Due] = true
		assert.True(t, run.Outcome == schedule.Succeeded || run.Due.After(last), "%+v", run)
		assert.False(t, run.Began.Before(run.Due), "%+v", run)
		assert.Equal(t, 1, run.Attempt, "%+v", run)
	}
	for fire := first; !fire.After(last); fire = fire.Add(tick) {
		assert.True(t, seen[fire], "the past has nothing of %v", fire)
	}
}

type counted struct {
	Due time.Time `bson:"due"`
	By  string    `bson:"by"`
}

func documents(t *testing.T, coll *mongo.Collection, filter any) (all []counted) {
	t.Helper()
	cursor, err := coll.Find(t.Context(), filter)
	require.NoError(t, err)
	require.NoError(t, cursor.All(t.Context(), &all))
	return all
}

type ticking struct{ URI, Collection, Name string }

// ticks runs the job until the process is told to end, and prints how many fires it
// asked for.
func ticks(ctx context.Context, o ticking) error {
	client, err := mongo.Connect(testserver.Dialling(o.URI))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	db := client.Database("mongolock_schedule")
	asked := make(chan struct{}, 10_000)
	s, err := schedule.New(db.Collection(o.Collection), schedule.WithOwner(o.Name), schedule.WithJitter(tick*9/10),
		schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Began || e.Kind == schedule.Passed {
				asked <- struct{}{}
			}
		}))
	if err != nil {
		return err
	}
	err = s.Add("tick", schedule.Every(tick), func(ctx context.Context, run schedule.Run) error {
		// Without an _id a fire that ran twice is there twice.
		_, err := db.Collection(o.Collection+"_runs").InsertOne(ctx, bson.M{"due": run.Due, "by": run.Owner})
		return err
	}, everyFire...)
	if err != nil {
		return err
	}
	err = s.Run(ctx)
	fmt.Println(o.Name, "asked", len(asked), "times")
	return err
}
