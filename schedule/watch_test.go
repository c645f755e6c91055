package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
	"github.com/mongolock/mongolock/store"
)

// A claim that was refused plans a read a TTL later. If that came between a read and what the
// read planned, a run that had died was repeated a minute late.
func TestTheEarlierOfTwoReadsAtAJobStays(t *testing.T) {
	jobs, err := schedule.InMemory()
	require.NoError(t, err)
	require.NoError(t, jobs.Add("report", schedule.Every(time.Hour), func(context.Context, schedule.Run) error { return nil }))
	soon, late := time.Now().Add(time.Second), time.Now().Add(time.Minute)
	assert.Equal(t, soon, jobs.ReadsAt("report", late, soon))
	assert.Equal(t, soon, jobs.ReadsAt("report", late))
}

// halfForeign shows the document of one job as another program's, and none of another job.
type halfForeign struct {
	jobs.Store
	on *atomic.Bool
}

func (h halfForeign) Read(ctx context.Context, names []string, detail jobs.Detail) ([]jobs.State, error) {
	all, err := h.Store.Read(ctx, names, detail)
	if !h.on.Load() || err != nil {
		return all, err
	}
	for i := range all {
		switch all[i].Job {
		case "changed":
			all[i] = jobs.State{Job: "changed", Foreign: store.ErrForeign}
		case "forgotten":
			all[i] = jobs.State{Job: "forgotten"}
		}
	}
	return all, store.ErrForeign
}

// One command reads several jobs. Only the one whose document is not a job's is in trouble.
func TestAJobWithoutADocumentIsNotFaultedBecauseOfAnother(t *testing.T) {
	inCluster(t, func(c *cluster) {
		shown := halfForeign{c.store, new(atomic.Bool)}
		faulted := map[string]int{}
		var mu sync.Mutex
		s, err := schedule.NewWithStore(shown, schedule.WithLogger(slog.New(slog.DiscardHandler)), schedule.WithEvents(func(e schedule.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == schedule.Faulted {
				faulted[e.Job]++
				assert.ErrorIs(c, e.Err, store.ErrForeign)
			}
		}))
		require.NoError(c, err)
		for _, name := range []string{"changed", "forgotten"} {
			require.NoError(c, s.Add(name, schedule.Every(time.Hour), func(context.Context, schedule.Run) error { return nil }))
		}
		ctx, stop := context.WithCancel(c.Context())
		over := make(chan error, 1)
		go func() { over <- s.Run(ctx) }()
		c.sleep(time.Minute)
		shown.on.Store(true)
		soon := c.store.Now().Add(time.Second)
		s.ReadsAt("changed", soon)
		s.ReadsAt("forgotten", soon)
		c.sleep(time.Minute)
		stop()
		require.NoError(c, <-over)
		assert.Equal(c, map[string]int{"changed": 1}, faulted)
	})
}

// Whichever command meets the document first, the log says what to do.
func TestAClaimThatMeetsAForeignDocumentSaysWhatToDo(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var changed atomic.Bool
		shown := &jobstest.Store{To: c.store, Through: func(_ context.Context, call jobstest.Call, send func() error) error {
			if call.Op == "claim" && changed.Load() {
				return fmt.Errorf("changed by hand: %w", store.ErrForeign)
			}
			return send()
		}}
		var log lab.Text
		s, err := schedule.NewWithStore(shown, schedule.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(c, err)
		require.NoError(c, s.Add("job", schedule.Every(time.Minute), func(context.Context, schedule.Run) error { return nil }))
		ctx, stop := context.WithCancel(c.Context())
		over := make(chan error, 1)
		go func() { over <- s.Run(ctx) }()
		c.sleep(time.Minute)
		changed.Store(true)
		c.sleep(2 * time.Minute)
		stop()
		require.NoError(c, <-over)
		assert.Contains(c, log.String(), `level=ERROR msg="schedule: a job will not run until its document is mended, or forgotten with mongolock jobs forget"`)
	})
}

// stoppedDuringItsClaim has two processes share a daily job. The claim of the first is
// applied, that of the other is refused, and then the first is stopped before its reply
// arrives: so its claim is undone. It returns the runs of the 12 hours after that.
func stoppedDuringItsClaim(c *cluster, other func(l *jobstest.Link), opts ...schedule.JobOption) []string {
	const midnight = 24 * time.Hour
	first := c.process(1).add("nightly", schedule.Every(midnight), time.Second, opts...)
	first.link.DelayReply(4 * time.Millisecond)
	first.start()
	second := c.process(2).add("nightly", schedule.Every(midnight), time.Second, opts...)
	second.link.Delay(time.Millisecond)
	second.start()
	c.until(midnight - time.Minute)
	other(second.link)
	c.until(midnight + 2*time.Millisecond)
	first.end()
	sent := first.link.Counted()
	delete(sent, "register") // by one of the two
	assert.Equal(c, map[string]int{"read": 1, "claim": 1, "undo": 1}, sent, "without the undo the test shows nothing")
	c.until(midnight + 12*time.Hour)
	second.end()
	var runs []string
	for _, run := range c.took() {
		runs = append(runs, fmt.Sprintf("due time %v by process %d, %v after it", run.Due.Sub(c.begin), run.by, (run.at-midnight).Truncate(time.Second)))
	}
	return runs
}

func TestAFireThatAStoppingProcessGivesBackRunsInAnother(t *testing.T) {
	for name, opts := range combinations() {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				runs := stoppedDuringItsClaim(c, func(*jobstest.Link) {}, opts...)
				assert.Equal(c, []string{"due time 24h0m0s by process 2, 15s after it"}, runs)
			})
		})
	}
}

func TestControlAProcessThatNeverLooksAgainLosesTheFireGivenBack(t *testing.T) {
	inCluster(t, func(c *cluster) {
		runs := stoppedDuringItsClaim(c, func(l *jobstest.Link) {
			l.Fail(func(call string) (error, error) {
				switch call {
				case "claim":
					time.Sleep(time.Millisecond)
				case "read":
					return jobstest.ErrCut, nil
				}
				return nil, nil
			})
		})
		assert.Empty(c, runs, "the fire ran although nobody looked: the test shows nothing")
	})
}

// Looks are shared by all jobs whose claims were refused at about the same time.
func TestOneLookServesAllJobsWhoseClaimsWereRefused(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first, second := c.process(1, schedule.WithWorkers(500)), c.process(2, schedule.WithWorkers(500))
		second.link.Delay(time.Millisecond)
		for i := range 500 {
			name := fmt.Sprint("job-", i)
			first.add(name, schedule.Every(time.Hour), time.Second)
			second.add(name, schedule.Every(time.Hour), time.Second)
		}
		first.start()
		second.start()
		c.until(30 * time.Minute)
		second.link.Counted()
		c.until(90 * time.Minute)
		assert.Equal(c, map[string]int{"claim": 500, "read": 1}, second.link.Counted())
		first.end()
		second.end()
	})
}

// A job that is due every second costs a process that loses its due times a read each 30 s.
func TestAJobThatIsDueOftenIsReadOnceATTL(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := c.process(1).add("job", schedule.Every(time.Second), time.Millisecond).start()
		second := c.process(2).add("job", schedule.Every(time.Second), time.Millisecond)
		second.link.Delay(time.Millisecond)
		second.start()
		c.until(500 * time.Millisecond)
		second.link.Counted()
		c.until(10*time.Minute + 500*time.Millisecond)
		sent := second.link.Counted()
		assert.Equal(c, 600, sent["claim"])
		assert.InDelta(c, 20, sent["read"], 1)
		first.end()
		second.end()
	})
}

// Looks fail for half an hour; then there is one, and not one for each that failed.
func TestLooksThatFailAreRepeatedRarely(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := c.process(1).add("job", schedule.Every(24*time.Hour), time.Second).start()
		second := c.process(2).add("job", schedule.Every(24*time.Hour), time.Second)
		second.link.Delay(time.Millisecond)
		second.start()
		c.until(24*time.Hour + time.Second)
		second.link.Counted()
		second.link.Fail(func(call string) (error, error) { return errors.New("away"), nil })
		c.sleep(30 * time.Minute)
		assert.InDelta(c, 180, second.link.Counted()["read"], 2)
		second.link.Fail(nil)
		c.sleep(time.Hour)
		assert.Equal(c, map[string]int{"read": 1}, second.link.Counted())
		first.end()
		second.end()
	})
}
