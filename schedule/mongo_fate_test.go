package schedule_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
)

// inVirtualTime runs a test of the store on MongoDB, as it is in memory, in a bubble that begins in 2026, before which
// tokens are negative.
func inVirtualTime(t *testing.T, test func(t *testing.T, server *memmongo.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
		test(t, memmongo.New())
	})
}

// jobsIn returns the collection, by a client of its own.
func jobsIn(t *testing.T, server *memmongo.Server) *mongo.Collection {
	return server.Client(t).Database("d").Collection("jobs")
}

type spell struct {
	from, to time.Time
	run      schedule.Run
}

// behindLink starts a Scheduler on the store of MongoDB, behind a link that can lose replies.
func behindLink(t *testing.T, server *memmongo.Server, l *jobstest.Link, period time.Duration, takes time.Duration, events func(schedule.Event), opts ...schedule.JobOption) (calls func() []spell, end func()) {
	t.Helper()
	l.To = schedule.NewMongo(jobsIn(t, server))
	var mu sync.Mutex
	var all []spell
	sopts := []schedule.Option{schedule.WithLogger(slog.New(slog.DiscardHandler))}
	if events != nil {
		sopts = append(sopts, schedule.WithEvents(events))
	}
	s, err := schedule.NewWithStore(l, sopts...)
	require.NoError(t, err)
	require.NoError(t, s.Add("job", schedule.Every(period), func(_ context.Context, r schedule.Run) error {
		from := time.Now()
		time.Sleep(takes)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, spell{from, time.Now(), r})
		return nil
	}, opts...))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	return func() []spell { mu.Lock(); defer mu.Unlock(); return append([]spell(nil), all...) }, func() { cancel(); <-over }
}

// On MongoDB: AtMostOnce, not Beside. The reply to process 1's claim of D is lost and its connection is gone for
// TTL and more; process 2 runs D+period meanwhile. Process 1 then runs D beside it.
func TestMongoAClaimThatIsFoundLateRunsBesideNoOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, server *memmongo.Server) {
		opts := []schedule.JobOption{schedule.AtMostOnce(), schedule.With(mongolock.TTL(2 * time.Second))}
		one, two := jobstest.NewLink(nil), jobstest.NewLink(nil)
		var mu sync.Mutex
		var cut time.Time
		period := 12 * time.Second
		one.Fail(func(call string) (before, after error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case call == "claim" && cut.IsZero() && time.Now().UnixMilli()%period.Milliseconds() < 1000:
				cut = time.Now()
				return nil, jobstest.ErrCut // applied, the reply is lost
			case !cut.IsZero() && time.Since(cut) < 12400*time.Millisecond:
				return jobstest.ErrCut, nil
			}
			return nil, nil
		})
		two.Delay(100 * time.Millisecond)
		callsTwo, endTwo := behindLink(t, server, two, period, 11*time.Second, nil, opts...)
		callsOne, endOne := behindLink(t, server, one, period, 11*time.Second, nil, opts...)
		time.Sleep(45 * time.Second)
		endOne()
		endTwo()
		all := append(callsOne(), callsTwo()...)
		for _, c := range all {
			t.Log(c.run.Due.Format("05.000"), c.run.Attempt, c.from.Format("05.000"), c.to.Format("05.000"))
		}
		for i, a := range all {
			for _, b := range all[i+1:] {
				assert.False(t, a.from.Before(b.to) && b.from.Before(a.to), "two runs at a time: %v/%d and %v/%d", a.run.Due, a.run.Attempt, b.run.Due, b.run.Attempt)
				if a.from.Before(b.from) {
					assert.Less(t, a.run.Token(), b.run.Token(), "tokens fall")
				}
			}
		}
	})
}

// On MongoDB: Beside and Each. The reply to process 1's claim of D is lost, its connection is back after D+period
// was claimed by process 2. D never runs and is not told.
func TestMongoAClaimThatIsUndoneLateKeepsItsDueTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, server *memmongo.Server) {
		opts := []schedule.JobOption{schedule.Each(), schedule.Beside(), schedule.With(mongolock.TTL(20 * time.Second))}
		one, two := jobstest.NewLink(nil), jobstest.NewLink(nil)
		var mu sync.Mutex
		var cut time.Time
		told := map[time.Time]bool{}
		events := func(e schedule.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == schedule.Dropped {
				told[e.Due] = true
			}
		}
		period := 3 * time.Second
		one.Fail(func(call string) (before, after error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case call == "claim" && cut.IsZero() && time.Now().UnixMilli()%period.Milliseconds() < 800:
				cut = time.Now()
				return nil, jobstest.ErrCut // applied, the reply is lost
			case !cut.IsZero() && time.Since(cut) < 4*time.Second:
				return jobstest.ErrCut, nil
			}
			return nil, nil
		})
		two.Delay(100 * time.Millisecond)
		callsTwo, endTwo := behindLink(t, server, two, period, 100*time.Millisecond, events, opts...)
		callsOne, endOne := behindLink(t, server, one, period, 100*time.Millisecond, events, opts...)
		time.Sleep(50 * time.Second)
		endOne()
		endTwo()
		ran := map[int64]bool{}
		for _, c := range append(callsOne(), callsTwo()...) {
			ran[c.run.Due.UnixMilli()] = true
		}
		mu.Lock()
		defer mu.Unlock()
		require.False(t, cut.IsZero())
		due := cut.Truncate(period)
		require.True(t, ran[due.Add(period).UnixMilli()])
		assert.True(t, ran[due.UnixMilli()] || told[due], "the due time %v neither ran nor was told", due)
	})
}

// On MongoDB: the plan changes, a process with the new plan reads the job, and none is up at its first due time.
func TestMongoADueTimeOfANewPlanRunsAlthoughNoProcessWasUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, server *memmongo.Server) {
		now := time.Now()
		at := now.Add(4 * time.Second).Truncate(time.Millisecond)
		run := func(plan schedule.Plan, d time.Duration) (ran []time.Time) {
			s, err := schedule.New(jobsIn(t, server))
			require.NoError(t, err)
			var mu sync.Mutex
			require.NoError(t, s.Add("job", plan, func(_ context.Context, r schedule.Run) error {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, r.Due)
				return nil
			}, schedule.Each()))
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			require.NoError(t, s.Run(ctx))
			return ran
		}
		run(schedule.At(at.Add(time.Hour)), time.Second)
		run(schedule.At(at), time.Second) // the new plan, up before its due time
		time.Sleep(time.Until(at.Add(time.Second)))
		ran := run(schedule.At(at), 3*time.Second)
		assert.Len(t, ran, 1, "the run of the new plan's due time is lost")
	})
}

// A person's call that is applied late, after another, changes nothing: the last word holds.
func TestMongoACallThatComesLateDoesNotOverruleTheLastWord(t *testing.T) {
	paused := func(s jobs.State) bool { return s.Paused }
	for name, c := range map[string]struct {
		before []jobs.Change
		late   jobs.Change
		after  []jobs.Change
		wrong  func(jobs.State) bool
	}{
		"Pause":  {nil, jobs.Pause, []jobs.Change{jobs.Resume}, paused},
		"Resume": {[]jobs.Change{jobs.Pause}, jobs.Resume, []jobs.Change{jobs.Pause}, func(s jobs.State) bool { return !s.Paused }},
		"RunNow": {nil, jobs.AskRun, []jobs.Change{jobs.Pause, jobs.Resume}, func(s jobs.State) bool { return !s.Asked.IsZero() }},
		"Forget": {nil, jobs.Forget, []jobs.Change{jobs.Forget}, func(s jobs.State) bool { return !s.Known }},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, server *memmongo.Server) {
				slow := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
					if e.CommandName == "findAndModify" {
						server.Slow(20 * time.Second)
					}
				}}
				others := newStoreFixture(t, schedule.NewMongo(jobsIn(t, server)), time.Second)
				others.register()
				for _, b := range c.before {
					others.changed(b, true)
				}
				person := schedule.NewMongo(server.Client(t, func(o *options.ClientOptions) { o.SetMonitor(slow) }).Database("d").Collection("jobs"))
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := person.Change(ctx, others.job, c.late)
				require.Error(t, err)
				server.Slow(0)
				for _, a := range c.after {
					_, err := others.store.Change(t.Context(), others.job, a)
					require.NoError(t, err)
				}
				others.known, others.base = false, time.Now().UTC()
				others.register() // a process has it, again after Forget
				time.Sleep(time.Minute)
				assert.False(t, c.wrong(others.state()), "%+v", others.state())
			})
		})
	}
}

// Somebody has written a far date into the run of a process that is dead. Its job goes on once the run has not been renewed
// for a TTL.
func TestMongoADeadRunWithAFarDateBlocksItsJobForATTL(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, server *memmongo.Server) {
		f := newStoreFixture(t, schedule.NewMongo(jobsIn(t, server)), time.Second)
		f.job = "job"
		_, err := f.store.Register(t.Context(), f.job, schedule.Every(time.Minute).String(), f.fire(0))
		require.NoError(t, err)
		f.known = true
		time.Sleep(time.Minute)
		c := f.ask(1)
		f.won(c)
		_, err = jobsIn(t, server).UpdateByID(t.Context(), "job", bson.M{"$set": bson.M{"runs." + c.ID + ".expireAt": f.base.AddDate(100, 0, 0)}})
		require.NoError(t, err)
		calls, end := behindLink(t, server, jobstest.NewLink(nil), time.Minute, time.Second, nil)
		time.Sleep(long + 5*time.Minute)
		end()
		all := calls()
		require.NotEmpty(t, all)
		assert.Equal(t, f.fire(1), all[0].run.Due, "the run that died")
		assert.Equal(t, 2, all[0].run.Attempt)
		assert.Less(t, all[0].from.Sub(f.base), 3*time.Minute)
	})
}
