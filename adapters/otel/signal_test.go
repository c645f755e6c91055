package otellock_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/doclock/doclocktest"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/schedule"
)

func TestJobsThatNoProcessHasAreSeenByAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := memmongo.New().Client(t).Database("d").Collection("jobs")
		scheduler := func() *schedule.Scheduler {
			s, err := schedule.New(coll, schedule.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			return s
		}
		l, jobs := newLab(t), scheduler()
		signal, err := l.Jobs("jobs", scheduler())
		require.NoError(t, err)
		require.NoError(t, jobs.Add("import", schedule.Every(time.Hour), func(context.Context, schedule.Run) error { return nil }))
		require.NoError(t, jobs.Add("print", schedule.Every(10*time.Hour), func(context.Context, schedule.Run) error { return errors.New("no paper") }))
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Hour+time.Minute)
		defer stop()
		require.NoError(t, jobs.Run(ctx))
		require.NoError(t, jobs.Pause(t.Context(), "print"))
		time.Sleep(3 * time.Hour) // virtual: a due time passes
		state, err := jobs.Job(t.Context(), "import")
		require.NoError(t, err)
		is := l.metrics()
		for name, want := range map[string]float64{
			"lock.job.overdue{jobs,import}": (2*time.Hour + time.Minute).Seconds(), "lock.job.next{jobs,import}": float64(state.Next.Unix()),
			"lock.job.succeeded{jobs,import}": float64(state.Succeeded.Unix()), "lock.job.tried{jobs,import}": float64(state.Tried.Unix()),
			"lock.job.failing{jobs,print}": 1, "lock.job.paused{jobs,print}": 1,
		} {
			assert.InDelta(t, want, is[name], 2, name)
		}
		for _, not := range []string{"lock.job.failing{jobs,import}", "lock.job.paused{jobs,import}", "lock.job.overdue{jobs,print}", "lock.job.succeeded{jobs,print}", "lock.signal.unread{jobs}"} {
			assert.NotContains(t, is, not)
		}
		_, err = coll.UpdateByID(t.Context(), "import", bson.M{"$set": bson.M{"plans": bson.A{bson.M{"plan": "at high tide", "from": time.Now()}}}})
		require.NoError(t, err)
		is = l.metrics()
		assert.InDelta(t, 1, is["lock.signal.unread{jobs}"], 0)
		assert.NotContains(t, is, "lock.job.overdue{jobs,import}")
		require.NoError(t, signal.Unregister())
		assert.NotContains(t, l.metrics(), "lock.signal.unread{jobs}")
	})
}

func TestTheDocumentsOfAnOutboxAreSeenWhetherOrNotAWorkerIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, outbox := newLab(t), doclocktest.New[bson.M](t)
		came := "came"
		_, err := l.Documents("outbox", func(ctx context.Context) (doclock.Backlog, error) { return outbox.Backlog(ctx, bson.D{}, came) })
		require.NoError(t, err)
		b, err := outbox.Backlog(t.Context(), bson.D{}, "")
		require.NoError(t, err)
		outbox.Insert(bson.M{"_id": 1, "came": b.Now.Add(-time.Hour)})
		outbox.Insert(bson.M{"_id": 2, "came": b.Now.Add(-time.Minute)})
		msg, err := outbox.TryClaim(t.Context(), bson.D{}, bson.D{{Key: "_id", Value: 1}})
		require.NoError(t, err)
		is := l.metrics()
		assert.InDelta(t, 60, is["lock.documents.oldest{outbox}"], 1)
		delete(is, "lock.documents.oldest{outbox}")
		assert.Equal(t, map[string]float64{"lock.documents{outbox,claimable}": 1, "lock.documents{outbox,claimed}": 1}, is)
		require.NoError(t, msg.Release())
		came = "cmae"
		assert.Equal(t, map[string]float64{"lock.documents{outbox,claimable}": 2, "lock.signal.unread{outbox}": 1}, l.metrics())
		outbox.Fail(errors.New("no route to host"))
		assert.Equal(t, map[string]float64{"lock.signal.unread{outbox}": 1}, l.metrics())
		outbox.Fail(nil)
	})
}
