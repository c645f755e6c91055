package promlock_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	promlock "github.com/mongolock/mongolock/adapters/prometheus"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/doclock/doclocktest"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/schedule"
)

// gathered are the metrics of a collector, by name and labels.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			all[f.GetName()+labels(m)] = value(f.GetType(), m)
		}
	}
	return all
}

func schedulerOn(t *testing.T, coll *mongo.Collection) *schedule.Scheduler {
	t.Helper()
	s, err := schedule.New(coll, schedule.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	return s
}

func TestJobsThatNoProcessHasAreSeenByAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, monitor, sent := memmongo.New(), new(event.CommandMonitor), []string{}
		monitor.Started = func(_ context.Context, e *event.CommandStartedEvent) { sent = append(sent, e.CommandName) }
		jobs := schedulerOn(t, server.Client(t).Database("d").Collection("jobs"))
		aside := server.Client(t, func(o *options.ClientOptions) { o.SetMonitor(monitor) }).Database("d").Collection("jobs")
		signal := promlock.Jobs("jobs", schedulerOn(t, aside))
		assert.Equal(t, map[string]float64{"mongolock_signal_unread{jobs}": 0}, gathered(t, signal))

		require.NoError(t, jobs.Add("import", schedule.Every(time.Hour), func(context.Context, schedule.Run) error { return nil }))
		require.NoError(t, jobs.Add("print", schedule.Every(10*time.Hour), func(context.Context, schedule.Run) error { return errors.New("no paper") }))
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- jobs.Run(ctx) }()
		time.Sleep(10*time.Hour + time.Minute) // virtual: due times pass
		stop()
		require.NoError(t, <-over)
		require.NoError(t, jobs.Pause(t.Context(), "print"))
		time.Sleep(3 * time.Hour) // virtual: more of them

		state, err := jobs.Job(t.Context(), "import")
		require.NoError(t, err)
		sent = nil
		is := gathered(t, signal)
		assert.Equal(t, []string{"find", "find", "hello"}, sent)
		assert.InDelta(t, (2*time.Hour + time.Minute).Seconds(), is["mongolock_job_overdue_seconds{jobs,import}"], 2)
		assert.InDelta(t, float64(state.Next.Unix()), is["mongolock_job_next_timestamp_seconds{jobs,import}"], 1)
		assert.InDelta(t, float64(state.Succeeded.Unix()), is["mongolock_job_succeeded_timestamp_seconds{jobs,import}"], 1)
		assert.InDelta(t, float64(state.Tried.Unix()), is["mongolock_job_tried_timestamp_seconds{jobs,import}"], 1)
		for name, want := range map[string]float64{
			"mongolock_job_failing{jobs,import}": 0, "mongolock_job_failing{jobs,print}": 1, "mongolock_job_paused{jobs,import}": 0,
			"mongolock_job_paused{jobs,print}": 1, "mongolock_job_overdue_seconds{jobs,print}": 0, "mongolock_signal_unread{jobs}": 0,
		} {
			got, there := is[name]
			assert.True(t, there, name)
			assert.InDelta(t, want, got, 0, name)
		}
		assert.NotContains(t, is, "mongolock_job_succeeded_timestamp_seconds{jobs,print}")
		assert.Len(t, is, 12)
	})
}

func TestJobsThatCannotBeReadAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memmongo.New()
		coll := server.Client(t).Database("d").Collection("jobs")
		jobs := schedulerOn(t, coll)
		require.NoError(t, jobs.Add("import", schedule.Every(time.Hour), func(context.Context, schedule.Run) error { return nil }))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, jobs.Run(ctx))
		_, err := coll.UpdateByID(t.Context(), "import", bson.M{"$set": bson.M{"plans": bson.A{bson.M{"plan": "at high tide", "from": time.Now()}}}})
		require.NoError(t, err)
		signal := promlock.Jobs("jobs", schedulerOn(t, coll))
		is := gathered(t, signal)
		assert.InDelta(t, 1, is["mongolock_signal_unread{jobs}"], 0)
		assert.NotContains(t, is, "mongolock_job_overdue_seconds{jobs,import}")

		server.Slow(time.Minute)
		began := time.Now()
		assert.Equal(t, map[string]float64{"mongolock_signal_unread{jobs}": 1}, gathered(t, signal))
		assert.Less(t, time.Since(began), 10*time.Second, "the scrape's time limit")
		server.Slow(0)
	})
}

func TestTwoCollectionsAreRegisteredTogether(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, name := range []string{"jobs", "other"} {
		jobs, err := schedule.InMemory()
		require.NoError(t, err)
		require.NoError(t, registry.Register(promlock.Jobs(name, jobs)))
	}
	_, err := registry.Gather()
	require.NoError(t, err)
}

func TestTheDocumentsOfAnOutboxAreSeenWhetherOrNotAWorkerIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := doclocktest.New[bson.M](t)
		came := "came"
		signal := promlock.Documents("outbox", func(ctx context.Context) (doclock.Backlog, error) { return outbox.Backlog(ctx, bson.D{}, came) })
		b, err := outbox.Backlog(t.Context(), bson.D{}, "")
		require.NoError(t, err)
		begin := b.Now
		outbox.Insert(bson.M{"_id": 1, "came": begin.Add(-time.Hour)})
		outbox.Insert(bson.M{"_id": 2, "came": begin.Add(-time.Minute)})
		msg, err := outbox.TryClaim(t.Context(), bson.D{}, bson.D{{Key: "_id", Value: 1}})
		require.NoError(t, err)
		is := gathered(t, signal)
		assert.InDelta(t, 60, is["mongolock_documents_oldest_seconds{outbox}"], 1)
		delete(is, "mongolock_documents_oldest_seconds{outbox}")
		assert.Equal(t, map[string]float64{"mongolock_documents_claimable{outbox}": 1, "mongolock_documents_claimed{outbox}": 1,
			"mongolock_documents_dead{outbox}": 0, "mongolock_signal_unread{outbox}": 0}, is)
		require.NoError(t, msg.Release())
		came = "cmae"
		assert.Equal(t, map[string]float64{"mongolock_documents_claimable{outbox}": 2, "mongolock_documents_claimed{outbox}": 0,
			"mongolock_documents_dead{outbox}": 0, "mongolock_signal_unread{outbox}": 1}, gathered(t, signal))
		outbox.Fail(errors.New("no route to host"))
		assert.Equal(t, map[string]float64{"mongolock_signal_unread{outbox}": 1}, gathered(t, signal))
		outbox.Fail(nil)
	})
}
