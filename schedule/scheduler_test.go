package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestTenThousandJobsAreServedByABoundedNumberOfGoroutines(t *testing.T) {
	inCluster(t, func(c *cluster) {
		before := runtime.NumGoroutine()
		p := c.process(1, schedule.WithWorkers(32))
		var most atomic.Int64
		for i := range 10_000 {
			p.job(fmt.Sprint("job-", i), schedule.Every(time.Minute), func(context.Context, schedule.Run) error {
				n := int64(runtime.NumGoroutine() - before)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				time.Sleep(10 * time.Millisecond)
				return nil
			})
		}
		p.start()
		c.sleep(30 * time.Second)
		assert.LessOrEqual(c, runtime.NumGoroutine()-before, 8, "goroutines between fires")
		c.sleep(60 * time.Second)
		assert.Len(c, c.took(), 10_000)
		// Each worker, and those before it that the scheduler has not let end yet: two, seldom three.
		assert.LessOrEqual(c, most.Load(), int64(4*32), "goroutines during runs")
		assert.Equal(c, map[string]int{"read": 10, "claim": 10_000, "end": 10_000, "register": 10_000}, p.link.Counted())
		p.end()
		assert.Zero(c, p.Unsettled(), "claims that are still tracked")
	})
}

func TestAFireWaitsForAWorkerOrIsClaimedByAnotherProcess(t *testing.T) {
	inCluster(t, func(c *cluster) {
		full := c.process(1, schedule.WithWorkers(1)).add("a", schedule.Every(10*time.Second), 8*time.Second).
			add("b", schedule.Every(10*time.Second), time.Second).start()
		free := c.process(2, schedule.WithJitter(time.Second)).add("b", schedule.Every(10*time.Second), time.Second).start()
		c.sleep(29 * time.Second)
		full.end()
		free.end()
		assert.Equal(c, seconds(10, 10, 20, 20), c.fires())
	})
}

func TestARunEndsWithRunsContext(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).job("job", schedule.Every(time.Minute), func(ctx context.Context, _ schedule.Run) error {
			<-ctx.Done()
			time.Sleep(2 * time.Second) // it needs some time to stop
			return context.Cause(ctx)
		}, schedule.AtMostOnce()).start()
		c.sleep(70 * time.Second)
		began := time.Now()
		p.end()
		assert.Equal(c, 2*time.Second, time.Since(began), "how long Run waited")
		past := c.state("job").Past
		require.Len(c, past, 1)
		assert.EqualValues(c, schedule.Stopped, past[0].Outcome)
		assert.Equal(c, 12*time.Second, past[0].Ended.Sub(past[0].Began))
	})
}

func TestARunMayGoOnForTheGrace(t *testing.T) {
	for grace, want := range map[time.Duration]schedule.Outcome{5 * time.Second: schedule.Stopped, time.Minute: schedule.Succeeded} {
		inCluster(t, func(c *cluster) {
			p := c.process(1, schedule.WithGrace(grace)).add("job", schedule.Every(time.Minute), 20*time.Second, schedule.AtMostOnce()).start()
			c.sleep(70 * time.Second)
			p.end()
			past := c.state("job").Past
			require.Len(c, past, 1)
			assert.EqualValues(c, want, past[0].Outcome, "with a grace of %v", grace)
		})
	}
}

func TestJobsMayComeAndGoWhileRunIsRunning(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).start()
		c.sleep(90 * time.Second)
		p.add("job", schedule.Every(time.Minute), time.Second)
		c.sleep(90 * time.Second) // 3:00
		p.Remove("job")
		c.sleep(2 * time.Minute)
		p.add("job", schedule.Every(time.Hour), time.Second)
		c.sleep(time.Hour)
		p.end()
		// Until a process had the new plan, the due times were those of the old one: the latest, 5:00, runs.
		assert.Equal(c, []time.Duration{2 * time.Minute, 3 * time.Minute, 5 * time.Minute, time.Hour}, c.fires())
	})
}

func TestAJobsNewPlanHoldsAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", schedule.Every(24*time.Hour), time.Second).start()
		c.sleep(25*time.Hour + 10*time.Minute) // its next fire is a day away
		p.end()
		q := c.process(2).add("job", schedule.Every(time.Hour), time.Second).start()
		c.sleep(2 * time.Hour)
		q.end()
		assert.Equal(c, []time.Duration{24 * time.Hour, 26 * time.Hour, 27 * time.Hour}, c.fires())
	})
}

func TestRunRunsOnceAtATimeAndMayRunAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", schedule.Every(time.Minute), time.Second).start()
		c.sleep(time.Second)
		assert.ErrorIs(c, p.Run(c.Context()), schedule.ErrRunning)
		c.sleep(time.Minute)
		p.end()
		p.start()
		c.sleep(time.Minute)
		p.end()
		assert.Equal(c, seconds(60, 120), c.fires())
	})
}

func TestTheObserverIsToldTheFateOfEachFire(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var told []string
		failed := errors.New("no paper")
		p := c.process(1, schedule.WithEvents(func(e schedule.Event) {
			told = append(told, fmt.Sprint(e.Kind, " ", e.Due.Sub(c.begin), " ", e.Err))
		}))
		p.job("job", schedule.Every(time.Minute), func(context.Context, schedule.Run) error { return failed }).start()
		c.sleep(61 * time.Second)
		q := c.process(2).add("job", schedule.Every(time.Minute), 0).start()
		p.link.Delay(time.Millisecond)
		c.sleep(60 * time.Second)
		p.end()
		q.end()
		assert.Equal(c, []string{"began 1m0s <nil>", "ended 1m0s no paper", "passed 2m0s <nil>"}, told)
	})
}

func TestTheLeaseOfARunCannotBeDetached(t *testing.T) {
	inCluster(t, func(c *cluster) {
		locks, err := mongolock.NewWithStore(memstore.New())
		require.NoError(c, err)
		defer locks.Close()
		p := c.process(1).job("job", schedule.Every(time.Minute), func(ctx context.Context, run schedule.Run) error {
			_, err := run.Lease.Detach(ctx)
			assert.ErrorIs(c, err, errors.ErrUnsupported)
			assert.ErrorContains(c, err, "the lease of a job's run cannot be resumed")
			lock, err := locks.Acquire(ctx, "a lock of the job's own")
			if assert.NoError(c, err) {
				_, err = lock.Detach(ctx)
				assert.NoError(c, err, "a lock that is acquired during the run")
			}
			return run.Lease.Err() // the run goes on
		}).start()
		c.sleep(70 * time.Second)
		p.end()
		past := c.state("job").Past
		require.Len(c, past, 1)
		assert.EqualValues(c, schedule.Succeeded, past[0].Outcome)
	})
}

// The lease is the scheduler's to release. But callers of package mongolock are used to defer it.
func TestAFunctionThatReleasesItsLeaseRunsOnce(t *testing.T) {
	for name, opts := range combinations() {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				p := c.process(1).job("job", atThree, func(_ context.Context, run schedule.Run) error {
					defer run.Lease.Release()
					time.Sleep(time.Minute)
					return nil
				}, opts...).start()
				c.until(20 * time.Hour)
				p.end()
				assert.Len(c, c.took(), 1)
				state := c.state("job")
				require.Len(c, state.Past, 1)
				assert.Equal(c, string(schedule.Succeeded), state.Past[0].Outcome)
				assert.Empty(c, state.Runs)
				assert.Zero(c, p.Unsettled(), "claims that are still tracked")
			})
		})
	}
}
