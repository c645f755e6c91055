package schedule_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/scheduletest"
)

// A diary has what became of a nightly job, with the time of the day.
type diary struct {
	mu    sync.Mutex
	begin time.Time
	lines []string
}

func (d *diary) add(format string, a ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%v ", time.Since(d.begin).Truncate(time.Second))+fmt.Sprintf(format, a...))
}

func (d *diary) events() schedule.Option {
	return schedule.WithEvents(func(e schedule.Event) {
		switch e.Kind {
		case schedule.Began:
			d.add("%v attempt %d", e.Due.Sub(d.begin), e.Run.Attempt)
		case schedule.Dropped:
			d.add("%v dropped %d", e.Due.Sub(d.begin), e.Count)
		}
	})
}

func (d *diary) read() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "; ")
}

// nightly is a job that is due at 3:00 and at its first attempt takes a while.
func nightly(takes time.Duration) schedule.Func {
	return func(ctx context.Context, r schedule.Run) error {
		if r.Attempt > 1 {
			return nil
		}
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var atThree = schedule.Cron("0 3 * * *")

// RunNow comes from a process without the job, as it does from mongolock jobs run.
func TestRunNowIsFoundByAPoll(t *testing.T) {
	for name, test := range map[string]struct {
		at   time.Duration
		opts []schedule.JobOption
		want string
	}{
		"idle":            {at: time.Hour + 3*time.Second, want: "1h0m30s 1h0m3s attempt 1; 3h0m0s 3h0m0s attempt 1"},
		"MaxLate":         {at: time.Hour + 3*time.Second, opts: []schedule.JobOption{schedule.MaxLate(time.Second)}, want: "1h0m30s 1h0m3s attempt 1; 3h0m0s 3h0m0s attempt 1"},
		"run under way":   {at: 3*time.Hour + 63*time.Second, want: "3h0m0s 3h0m0s attempt 1; 4h0m0s 3h1m3s attempt 1"},
		"… with Each":     {at: 3*time.Hour + 63*time.Second, opts: []schedule.JobOption{schedule.Each()}, want: "3h0m0s 3h0m0s attempt 1; 4h0m0s 3h1m3s attempt 1"},
		"… AtMostOnce":    {at: 3*time.Hour + 63*time.Second, opts: []schedule.JobOption{schedule.AtMostOnce()}, want: "3h0m0s 3h0m0s attempt 1; 4h0m0s 3h1m3s attempt 1"},
		"… with Beside":   {at: 3*time.Hour + 63*time.Second, opts: []schedule.JobOption{schedule.Beside()}, want: "3h0m0s 3h0m0s attempt 1; 3h1m30s 3h1m3s attempt 1"},
		"… and a MaxLate": {at: 3*time.Hour + 63*time.Second, opts: []schedule.JobOption{schedule.MaxLate(time.Second)}, want: "3h0m0s 3h0m0s attempt 1; 4h0m0s 3h1m3s dropped 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{begin: time.Now()}
				jobs := scheduletest.New(t, d.events())
				require.NoError(t, jobs.Add("job", atThree, nightly(time.Hour), test.opts...))
				jobs.Start()
				time.Sleep(test.at)
				require.NoError(t, jobs.Another().RunNow(t.Context(), "job"))
				time.Sleep(20*time.Hour - test.at)
				assert.Equal(t, test.want, d.read())
			})
		})
	}
}

// A person tries a job out: starts the process, calls RunNow, and again.
func TestRunNowIsFoundSoonerWhenAProcessIsYoungOrTheJobWasJustChanged(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", atThree, time.Second).start()
		for _, at := range seconds(5, 30, 600, 609) {
			c.until(at)
			require.NoError(c, c.process(2).RunNow(t.Context(), "job"))
		}
		c.until(time.Hour)
		p.end()
		var began []time.Duration
		for _, r := range c.took() {
			began = append(began, r.at)
		}
		assert.Equal(c, seconds(6, 36, 606, 612), began)
	})
}

// The answers to a process's polls stay out for longer than a poll looks back.
func TestRunNowIsFoundAfterAnOutage(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", atThree, time.Minute).start()
		c.until(time.Hour)
		require.NoError(c, c.process(2).RunNow(t.Context(), "job"))
		p.link.Cut()
		c.sleep(10 * time.Minute)
		p.link.Fail(nil)
		c.sleep(time.Minute)
		assert.Equal(c, []time.Duration{time.Hour}, c.fires())
		p.end()
	})
}

// RunNow is called during a run that is stopped later, and repeated when no poll finds the call any more.
func TestRunNowIsFoundByTheProcessThatRepeatsARun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", atThree, time.Hour).start()
		c.until(3*time.Hour + time.Minute)
		require.NoError(c, c.process(2).RunNow(t.Context(), "job"))
		c.until(3*time.Hour + 20*time.Minute)
		p.end()
		c.took()
		q := c.process(2).add("job", atThree, time.Minute).start()
		c.until(4 * time.Hour)
		q.end()
		assert.Equal(c, []time.Duration{3 * time.Hour, 3*time.Hour + time.Minute}, c.fires())
	})
}

// RunNow is called during a deploy, while no process is up, and the plan is a new one.
func TestRunNowIsFoundByAProcessWithAnotherPlan(t *testing.T) {
	for name, opts := range lates {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				p := c.process(1).add("job", atThree, time.Minute, opts...).start()
				c.until(time.Hour)
				p.end()
				q := c.process(2).add("job", schedule.Cron("0 4 * * *"), time.Minute, opts...)
				require.NoError(c, q.RunNow(t.Context(), "job"))
				c.sleep(20 * time.Second)
				q.start()
				c.until(5 * time.Hour)
				q.end()
				assert.Equal(c, []time.Duration{time.Hour, 4 * time.Hour}, c.fires())
			})
		})
	}
}

// … and so late that it is dropped.
func TestARunNowThatIsTooLateUnderAnotherPlanIsTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", atThree, time.Minute).start()
		c.until(time.Hour)
		p.end()
		require.NoError(c, p.RunNow(t.Context(), "job"))
		c.sleep(10 * time.Minute)
		told := &notebook{begin: c.begin}
		q := c.process(2, told.options()...).add("job", schedule.Cron("0 4 * * *"), time.Minute, schedule.MaxLate(time.Minute)).start()
		c.until(5 * time.Hour)
		q.end()
		assert.Equal(c, []time.Duration{4 * time.Hour}, c.fires())
		assert.Equal(c, []string{"job 1h0m0s to 1h0m0s"}, told.told)
	})
}

// A pause begins before any process has found the call.
func TestARunNowThatAPauseOvertakesIsTold(t *testing.T) {
	for name, opts := range lates {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{begin: time.Now()}
				jobs := scheduletest.New(t, d.events())
				require.NoError(t, jobs.Add("job", atThree, nightly(time.Minute), opts...))
				jobs.Start()
				operator := jobs.Another()
				time.Sleep(time.Hour + 3*time.Second)
				require.NoError(t, operator.RunNow(t.Context(), "job"))
				time.Sleep(10 * time.Second)
				require.NoError(t, operator.Pause(t.Context(), "job"))
				time.Sleep(time.Hour)
				require.NoError(t, operator.Resume(t.Context(), "job"))
				time.Sleep(3 * time.Hour)
				assert.Equal(t, "3h0m0s 1h0m3s dropped 1; 3h0m0s 3h0m0s attempt 1", d.read())
			})
		})
	}
}

// The other process is up, and reads the job every ten seconds while it runs elsewhere.
func TestARunThatWasStoppedIsRepeatedByAnotherProcessSoon(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", atThree, time.Hour).start()
		q := c.process(2).add("job", atThree, time.Hour)
		q.link.Delay(50 * time.Millisecond) // so process 1 is the first
		q.start()
		c.until(4*time.Hour - 40*time.Second)
		p.end()
		c.sleep(10 * time.Second)
		q.end()
		assert.Len(c, c.took(), 2)
	})
}

func TestARunThatWasStoppedDuringAPauseIsRepeatedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{begin: time.Now()}
		jobs := scheduletest.New(t, d.events())
		require.NoError(t, jobs.Add("job", atThree, nightly(time.Hour)))
		other := jobs.Another(d.events())
		require.NoError(t, other.Add("job", atThree, nightly(time.Hour)))
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- other.Run(ctx) }()
		time.Sleep(3*time.Hour + time.Second)
		jobs.Start()
		require.NoError(t, jobs.Another().Pause(t.Context(), "job"))
		time.Sleep(10 * time.Minute)
		stop()
		require.NoError(t, <-stopped)
		time.Sleep(10 * time.Minute)
		require.NoError(t, jobs.Another().Resume(t.Context(), "job"))
		time.Sleep(time.Minute)
		assert.Contains(t, d.read(), "3h0m0s attempt 2")
	})
}

// collated is a collection that does not tell the case of letters apart: it also shows the document of
// another name.
type collated struct{ jobs.Store }

func (c collated) Changed(ctx context.Context, names []string, since time.Time) (map[string]time.Time, error) {
	asked, err := c.Store.Changed(ctx, append(slices.Clone(names), "report"), since)
	return asked, err
}

// A process that has Report is told that report is to run now.
func TestAPollPassesOverAJobThatItDoesNotHave(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1)
		s, err := schedule.NewWithStore(collated{c.store})
		require.NoError(c, err)
		p.Scheduler = s
		p.add("Report", atThree, time.Second).start()
		_, err = c.store.Register(t.Context(), "report", "every 1h0m0s", c.begin)
		require.NoError(c, err)
		c.until(time.Hour)
		require.NoError(c, p.RunNow(t.Context(), "report"))
		c.until(4 * time.Hour)
		p.end()
		assert.Equal(c, []time.Duration{3 * time.Hour}, c.fires())
	})
}

func TestACallThatMeansNothingForAJobSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := scheduletest.New(t)
		require.NoError(t, jobs.Add("report", atThree, nightly(0)))
		jobs.Start()
		time.Sleep(time.Minute)
		assert.EqualError(t, jobs.Resume(t.Context(), "report"), `schedule: Resume("report"): the job is not paused`)
		require.NoError(t, jobs.Pause(t.Context(), "report"))
		assert.EqualError(t, jobs.RunNow(t.Context(), "report"), `schedule: RunNow("report"): the job is paused`)
		assert.ErrorIs(t, jobs.Resume(t.Context(), "reprot"), schedule.ErrUnknown)
		require.NoError(t, jobs.Resume(t.Context(), "report"))
		paused := make(map[string]bool)
		for state, err := range jobs.Jobs(t.Context()) {
			require.NoError(t, err)
			paused[state.Job] = state.Paused
		}
		assert.Equal(t, map[string]bool{"report": false}, paused)
	})
}
