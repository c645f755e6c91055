package schedule_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

// collection is one of the test's own on the server, with a client of its own.
func collection(t testing.TB, name string, opts ...func(*options.ClientOptions)) *mongo.Collection {
	t.Helper()
	coll := testserver.Connect(t, testserver.URI(t), opts...).Database("mongolock_schedule").Collection(name)
	t.Cleanup(func() { _ = coll.Drop(context.Background()) })
	return coll
}

func fresh() string { return "jobs_" + rand.Text()[:10] }

func TestMongoKeepsTheContract(t *testing.T) {
	testserver.URI(t, "!router")
	s := schedule.NewMongo(collection(t, fresh()))
	for name, claim := range claims() {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of them wait for a TTL
			if strings.Contains(name, "concurrent") {
				testserver.URI(t, "atomic")
			}
			claim(newStoreFixture(t, s, time.Second))
		})
	}
}

func TestMongoAClaimIsOneCommandWonOrLost(t *testing.T) {
	testserver.URI(t)
	name := fresh()
	var one, two testserver.Tap
	winner, loser := schedule.NewMongo(collection(t, name, one.On)), schedule.NewMongo(collection(t, name, two.On))
	f := newStoreFixture(t, winner, time.Second)
	for _, s := range []jobs.Store{winner, loser} { // as Run begins
		_, err := s.Read(f.ctx(), []string{f.job}, jobs.WithPast)
		require.NoError(t, err)
	}
	f.finish(f.claimed(f.ask(1))) // the first write of a client may be sent twice (docs/internals/schedule.md)
	_, err := loser.Claim(f.ctx(), f.ask(1))
	require.ErrorIs(t, err, jobs.ErrNotDue)
	one.TakeNames()
	two.TakeNames()
	for n := 2; n <= 4; n++ {
		c := f.after(f.ask(n), n-1)
		won, err := winner.Claim(f.ctx(), c)
		require.NoError(t, err)
		assert.Equal(t, []string{"findAndModify"}, one.TakeNames(), "a claim that is granted")
		_, err = loser.Claim(f.ctx(), f.after(f.ask(n), n-1))
		require.ErrorIs(t, err, jobs.ErrNotDue)
		assert.Equal(t, []string{"findAndModify"}, two.TakeNames(), "a claim that is refused")
		f.finish(c, won)
		assert.Equal(t, []string{"findAndModify"}, one.TakeNames(), "an end")
	}
}

func TestMongoALookAfterALostClaimIsOneFind(t *testing.T) {
	testserver.URI(t, "!router")
	var sent testserver.Tap
	f := newStoreFixture(t, schedule.NewMongo(collection(t, fresh(), sent.On)), time.Second)
	c := f.ask(1)
	won := f.won(c)
	f.finish(c, won)
	sent.TakeNames()
	look := func(detail jobs.Detail) []string {
		_, err := f.store.Read(f.ctx(), []string{f.job}, detail)
		require.NoError(t, err)
		return sent.TakeNames()
	}
	assert.Equal(t, []string{"find"}, look(jobs.WithoutPast))
	assert.Equal(t, []string{"find", "hello"}, look(jobs.WithPast))
	f.won(f.after(f.ask(2), 1))
	sent.TakeNames()
	assert.Equal(t, []string{"find", "hello"}, look(jobs.WithoutPast), "while a run is under way")
}

// A job's past may be large: up to 1,000 runs, with errors. Only a caller that wants to see
// it gets it.
func TestMongoNoReplyCarriesThePastUnasked(t *testing.T) {
	testserver.URI(t, "expressions") // FerretDB, which has none, cannot project these replies either
	coll := collection(t, fresh())
	f := newStoreFixture(t, schedule.NewMongo(coll), time.Second)
	c := f.ask(1)
	won := f.won(c)
	f.finish(c, won)
	large := strings.Repeat("x", 1<<20)
	_, err := coll.UpdateByID(t.Context(), f.job, bson.M{"$set": bson.M{fmt.Sprintf("past.%d.error", won.Number%3): large}})
	require.NoError(t, err)

	var largest atomic.Int64
	count := func(o *options.ClientOptions) {
		o.SetMonitor(&event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if n := int64(len(e.Reply)); n > largest.Load() && e.CommandName != "collStats" { // which is asked of a router once
				largest.Store(n)
			}
		}})
	}
	f.store = schedule.NewMongo(collection(t, coll.Name(), count))
	c = f.after(f.ask(2), 1)
	won = f.won(c)
	_, err = f.store.Renew(f.ctx(), c.Ref, long, true)
	require.NoError(t, err)
	f.refused("while it is busy", f.after(f.ask(3), 2))
	_, err = f.store.Read(f.ctx(), []string{f.job}, jobs.WithoutPast)
	require.NoError(t, err)
	f.finish(c, won)
	c = f.after(f.ask(3), 2)
	f.won(c)
	f.undo(c)
	assert.Less(t, largest.Load(), int64(10_000), "bytes in a reply")
	past := f.state().Past
	require.Len(t, past, 2)
	assert.Equal(t, len(large), len(past[1].Error), "the control: a look at the past has it all") //nolint:testifylint // the text would fill a failure's message
	assert.Greater(t, largest.Load(), int64(1<<20))
}

// onceAt is a plan that is due once.
type onceAt time.Time

func (onceAt) String() string { return "once" }

func (o onceAt) Next(t time.Time) time.Time {
	if at := time.Time(o); t.Before(at) {
		return at
	}
	return time.Time{}
}

// unasked returns the names of the commands that were sent, without polls, which come whatever the jobs do.
func unasked(sent *testserver.Tap) (names []string) {
	for _, c := range sent.Take() {
		if c.Lookup("filter", "changed").Value == nil {
			names = append(names, c.Index(0).Key())
		}
	}
	return names
}

func TestMongoBetweenFiresNothingIsSent(t *testing.T) {
	testserver.URI(t, "!router")
	t.Parallel()
	var sent testserver.Tap
	over, ended := make(chan error, 1), make(chan struct{})
	s, err := schedule.New(collection(t, fresh(), sent.On), schedule.WithLogger(slog.New(slog.DiscardHandler)),
		schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Ended {
				close(ended)
			}
		}))
	require.NoError(t, err)
	for i := range 20 {
		plan := schedule.Every(24 * time.Hour)
		if i == 0 {
			plan = onceAt(time.Now().Add(3 * time.Second).UTC().Truncate(time.Second)) // all jobs are registered before
		}
		require.NoError(t, s.Add(fmt.Sprint("job-", i), plan, nothing))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { over <- s.Run(ctx) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		require.Fail(t, "the due time was missed")
	}
	const registered = 20
	want := append([]string{"find", "hello"}, slices.Repeat([]string{"findAndModify"}, registered+2)...)
	assert.Equal(t, want, unasked(&sent), "for the beginning and a due time")
	time.Sleep(time.Second) // real: an absence; nothing may be sent in this time
	assert.Empty(t, unasked(&sent), "between fires")
	cancel()
	assert.NoError(t, <-over)
}

func TestMongoADocumentThatIsNoJobIsRefused(t *testing.T) {
	testserver.URI(t)
	coll := collection(t, fresh())
	_, err := coll.InsertOne(t.Context(), bson.M{"_id": "job", "schedule": 2, "decided": time.Now()})
	require.NoError(t, err)
	s, err := schedule.New(coll)
	require.NoError(t, err)
	require.NoError(t, s.Add("job", schedule.Every(time.Second), nothing))
	err = s.Run(t.Context())
	require.ErrorIs(t, err, store.ErrForeign)
	assert.ErrorContains(t, err, `"job"`)
	_, err = s.Job(t.Context(), "job")
	require.ErrorIs(t, err, store.ErrForeign)
	n, err := coll.CountDocuments(t.Context(), bson.M{"_id": "job", "schedule": 2})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n, "the document is still there, unchanged")
}

// A person has changed the document of a job that is on the schedule of a process. The job does
// not run, that is told, and after Forget it runs again, without a restart.
func TestMongoAJobWhoseDocumentWasMendedByHandIsTold(t *testing.T) {
	testserver.URI(t)
	for name, mend := range map[string]bson.D{
		"decided is text": {{Key: "$set", Value: bson.D{{Key: "decided", Value: "2026-11-25"}}}},
		"decided is gone": {{Key: "$unset", Value: bson.D{{Key: "decided", Value: ""}}}},
		"a run too many":  {{Key: "$set", Value: bson.D{{Key: "open", Value: 7}}}},
		"paused is false": {{Key: "$set", Value: bson.D{{Key: "paused", Value: false}}}},
		"another version": {{Key: "$set", Value: bson.D{{Key: "schedule", Value: 9}}}},
		"open is gone":    {{Key: "$set", Value: bson.D{{Key: "runs", Value: bson.D{}}}}, {Key: "$unset", Value: bson.D{{Key: "open", Value: ""}}}},
		"edition is true": {{Key: "$set", Value: bson.D{{Key: "edition", Value: true}}}},
		"a beat is gone": {{Key: "$set", Value: bson.D{{Key: "open", Value: 1},
			{Key: "runs", Value: bson.D{{Key: "x", Value: bson.D{{Key: "due", Value: time.Now()}, {Key: "expireAt", Value: time.Now()}, {Key: "ttl", Value: 1}}}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coll := collection(t, fresh())
			var log lab.Text
			foreign, ran := make(chan error, 1000), make(chan time.Time, 1000)
			s, err := schedule.New(coll, schedule.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), schedule.WithEvents(func(e schedule.Event) {
				if e.Kind == schedule.Faulted && errors.Is(e.Err, store.ErrForeign) {
					foreign <- e.Err
				}
			}))
			require.NoError(t, err)
			require.NoError(t, s.Add("job", schedule.Every(500*time.Millisecond), func(_ context.Context, r schedule.Run) error {
				ran <- r.Due
				return nil
			}, schedule.With(mongolock.TTL(2*time.Second))))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			defer func() { stop(); require.NoError(t, <-ended) }()
			soon := func(what string, is func() bool) {
				t.Helper()
				require.Eventually(t, is, 40*time.Second, 20*time.Millisecond, what)
			}
			soon("it did not run", func() bool { return len(ran) > 1 })
			_, err = coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "job"}}, mend)
			require.NoError(t, err)
			soon("no event told that the document is not a job's", func() bool { return len(foreign) > 0 })
			soon("no line told it", func() bool { return bytes.Contains([]byte(log.String()), []byte("mongolock jobs forget")) })
			assert.Contains(t, log.String(), "level=ERROR")
			if name == "another version" {
				require.ErrorIs(t, s.Forget(t.Context(), "job"), store.ErrForeign)
				return
			}
			require.NoError(t, s.Forget(t.Context(), "job"))
			n := len(ran)
			soon("it does not run after Forget", func() bool { return len(ran) > n+1 })
		})
	}
}
