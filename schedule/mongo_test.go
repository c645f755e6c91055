package schedule_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store"
)

// collection is one of its own on the server, seen by a process of its own.
func collection(t testing.TB, name string, opts ...func(*options.ClientOptions)) *mongo.Collection {
	t.Helper()
	coll := testserver.Connect(t, testserver.URI(t), opts...).Database("mongolock_schedule").Collection(name)
	t.Cleanup(func() { _ = coll.Drop(context.Background()) })
	return coll
}

func fresh() string { return "jobs_" + rand.Text()[:10] }

func TestMongoKeepsTheContract(t *testing.T) {
	testserver.URI(t)
	s := schedule.NewMongo(collection(t, fresh()))
	for name, claim := range claims {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of them wait for a TTL
			if strings.Contains(name, "many at once") {
				testserver.URI(t, "atomic")
			}
			claim(newBench(t, s, time.Second))
		})
	}
}

func TestMongoAClaimIsOneCommandWonOrLost(t *testing.T) {
	testserver.URI(t)
	name := fresh()
	var one, two testserver.Tap
	winner, loser := schedule.NewMongo(collection(t, name, one.On)), schedule.NewMongo(collection(t, name, two.On))
	b := newBench(t, winner, time.Second)
	for _, s := range []schedule.Store{winner, loser} { // as Run begins
		if _, err := s.Look(b.ctx(), []string{b.job}); err != nil {
			t.Fatal(err)
		}
	}
	one.TakeNames()
	two.TakeNames()
	for n := 1; n <= 3; n++ {
		c := b.ask(n)
		won := b.won(c)
		if got := one.TakeNames(); !slices.Equal(got, []string{"findAndModify"}) {
			t.Errorf("won by %q", got)
		}
		if _, err := loser.Claim(b.ctx(), b.ask(n)); !errors.Is(err, schedule.ErrNotDue) {
			t.Error(err)
		}
		if got := two.TakeNames(); !slices.Equal(got, []string{"findAndModify"}) {
			t.Errorf("lost by %q", got)
		}
		b.finish(c, won)
		if got := one.TakeNames(); !slices.Equal(got, []string{"findAndModify"}) {
			t.Errorf("ended by %q", got)
		}
	}
}

// A moment is a plan that is due once.
type moment time.Time

func (m moment) String() string { return "once" }

func (m moment) Next(t time.Time) time.Time {
	if at := time.Time(m); t.Before(at) {
		return at
	}
	return time.Time{}
}

func TestMongoBetweenFiresNothingIsSent(t *testing.T) {
	testserver.URI(t)
	t.Parallel()
	var c testserver.Tap
	over, left := make(chan error, 1), make(chan struct{})
	s, err := schedule.New(collection(t, fresh(), c.On), schedule.WithLogger(slog.New(slog.DiscardHandler)),
		schedule.WithObserver(func(e schedule.Event) {
			if e.Kind == schedule.Ended {
				close(left)
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		plan := schedule.Every(24 * time.Hour)
		if i == 0 {
			plan = moment(time.Now().Add(time.Second).UTC().Truncate(time.Second))
		}
		if err := s.Add(fmt.Sprint("job-", i), plan, nothing); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { over <- s.Run(ctx) }()
	<-left
	if got := c.TakeNames(); !slices.Equal(got, []string{"find", "hello", "findAndModify", "findAndModify"}) {
		t.Errorf("for a fire it sent %q", got)
	}
	time.Sleep(time.Second)
	if got := c.TakeNames(); len(got) != 0 {
		t.Errorf("between fires it sent %q", got)
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestMongoAStrangersDocumentIsRefused(t *testing.T) {
	testserver.URI(t)
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
