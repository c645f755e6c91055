package doclock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/doclock/doclocktest"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
)

func TestTheBacklogTellsWhatWaitsWhatIsWorkedOnAndWhatWasSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := doclocktest.New[bson.M](t, doclock.MaxAttempts(1), doclock.With(mongolock.TTL(time.Minute)))
		backlog := func(came string) doclock.Backlog {
			t.Helper()
			b, err := outbox.Backlog(t.Context(), fresh, came)
			require.NoError(t, err)
			return b
		}
		empty := backlog("meta.came")
		assert.Equal(t, doclock.Backlog{Now: empty.Now}, empty)
		begin := empty.Now
		for i, state := range []string{"new", "new", "new", "sent"} {
			outbox.Insert(bson.M{"_id": i, "state": state, "meta": bson.M{"came": begin.Add(time.Duration(i-5) * time.Hour)}})
		}
		b := backlog("meta.came")
		assert.Equal(t, doclock.Backlog{Claimable: 3, Oldest: begin.Add(-5 * time.Hour), Now: b.Now}, b)
		assert.Equal(t, 5*time.Hour, b.Age().Round(time.Second))
		assert.Zero(t, backlog("").Oldest)

		byAge := bson.D{{Key: "meta.came", Value: 1}}
		done, err := outbox.TryClaim(t.Context(), fresh, byAge)
		require.NoError(t, err)
		b = backlog("meta.came")
		assert.Equal(t, doclock.Backlog{Claimable: 2, Claimed: 1, Oldest: begin.Add(-4 * time.Hour), Now: b.Now}, b)
		require.NoError(t, done.Complete(t.Context()))
		later, err := outbox.TryClaim(t.Context(), fresh, byAge)
		require.NoError(t, err)
		require.NoError(t, later.Requeue(t.Context(), 10*time.Minute))
		b = backlog("meta.came")
		assert.Equal(t, doclock.Backlog{Claimable: 1, Oldest: begin.Add(-3 * time.Hour), Now: b.Now}, b, "what is put off cannot be claimed")
		release := outbox.Hold(bson.M{"_id": 2})
		b = backlog("meta.came")
		assert.Equal(t, doclock.Backlog{Claimed: 1, Now: b.Now}, b)
		assert.Zero(t, b.Age())
		release()

		time.Sleep(15 * time.Minute)
		_, err = outbox.TryClaim(t.Context(), bson.D{{Key: "_id", Value: 1}}, nil)
		require.ErrorIs(t, err, doclock.ErrNoWork, "its attempts are used up")
		b = backlog("meta.came")
		assert.Equal(t, doclock.Backlog{Claimable: 1, Dead: 1, Oldest: begin.Add(-3 * time.Hour), Now: b.Now}, b)
	})
}

func TestADocumentWhoseHolderRanOutIsClaimableAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := doclocktest.New[bson.M](t)
		id := bson.NewObjectIDFromTimestamp(time.Now().UTC())
		outbox.Insert(bson.M{"_id": id, "state": "new", "lock": bson.M{"doclock": 1, "id": "a", "owner": "dead", "expireAt": time.Now().AddDate(20, 0, 0)}})
		b, err := outbox.Backlog(t.Context(), fresh, "_id")
		require.NoError(t, err)
		assert.Equal(t, doclock.Backlog{Claimable: 1, Oldest: id.Timestamp(), Now: b.Now}, b)
	})
}

func TestAFieldWithoutADateIsAnErrorBesideTheNumbers(t *testing.T) {
	outbox := doclocktest.New[bson.M](t)
	outbox.Insert(bson.M{"_id": 1, "state": "new", "came": "yesterday"})
	for _, field := range []string{"came", "cmae", "_id"} {
		b, err := outbox.Backlog(t.Context(), fresh, field)
		require.ErrorIs(t, err, doclock.ErrDecode)
		require.ErrorContains(t, err, field)
		assert.Equal(t, 1, b.Claimable)
		assert.Zero(t, b.Age())
	}
	_, err := outbox.Backlog(t.Context(), make(chan int), "")
	require.ErrorContains(t, err, "the filter")
}

func TestABacklogTakesFourCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) { sent = append(sent, e.CommandName) }}
		coll := memmongo.New().Client(t, func(o *options.ClientOptions) { o.SetMonitor(monitor) }).Database("d").Collection("outbox")
		outbox, err := doclock.New[bson.M](coll)
		require.NoError(t, err)
		t.Cleanup(func() { _ = outbox.Close() })
		for _, first := range [][]string{{"hello"}, {}, {"hello"}} {
			sent = nil
			_, err := outbox.Backlog(t.Context(), fresh, "came")
			require.NoError(t, err)
			assert.Equal(t, append(first, "aggregate", "aggregate", "aggregate", "find"), sent)
			if len(first) == 0 {
				time.Sleep(time.Hour)
			}
		}
	})
}
