package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/schedule"
)

// A notebook collects what a process tells of fires that will not run.
type notebook struct {
	begin time.Time
	mu    sync.Mutex
	told  []string
	log   strings.Builder
}

func (n *notebook) options() []schedule.Option {
	return []schedule.Option{
		schedule.WithLogger(slog.New(slog.NewTextHandler(n, nil))),
		schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Dropped {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.told = append(n.told, fmt.Sprintf("%s %v to %v", e.Job, e.First.Sub(n.begin), e.Due.Sub(n.begin)))
			}
		}),
	}
}

func (n *notebook) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(line)
}

func TestAFireWaitsForAWorkerHoweverLong(t *testing.T) {
	inCluster(t, func(c *cluster) {
		told := &notebook{begin: c.begin}
		p := c.process(1, append(told.options(), schedule.WithWorkers(2))...)
		for i := range 6 {
			p.add(fmt.Sprint("job-", i), schedule.Every(time.Hour), 61*time.Second)
		}
		p.start()
		c.sleep(24*time.Hour + 5*time.Minute)
		p.end()
		runs := map[string]int{}
		for _, run := range c.took() {
			runs[run.Job]++
		}
		want := map[string]int{"job-0": 24, "job-1": 24, "job-2": 24, "job-3": 24, "job-4": 24, "job-5": 24}
		assert.Equal(c, want, runs)
		assert.Empty(c, told.told)
	})
}

func TestAFireThatComesDueDuringAnotherJobsRunFollowsIt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1, schedule.WithWorkers(1)).
			add("a", schedule.Cron("0 3 * * *"), 10*time.Minute).
			add("b", schedule.Cron("1 3 * * *"), time.Minute).start()
		c.sleep(10 * 24 * time.Hour)
		p.end()
		var got, want []time.Duration
		for _, run := range c.took() {
			if run.Job == "b" {
				got = append(got, run.at)
			}
		}
		for night := range 10 {
			want = append(want, time.Duration(night)*24*time.Hour+3*time.Hour+10*time.Minute)
		}
		assert.Equal(c, want, got)
	})
}

// A job runs for two and a half hours, and another, hourly one has no worker.
func TestFiresWhileNoWorkerWasFreeAreReported(t *testing.T) {
	inCluster(t, func(c *cluster) {
		told := &notebook{begin: c.begin}
		p := c.process(1, append(told.options(), schedule.WithWorkers(1))...).
			add("long", schedule.Cron("0 5 * * *"), 150*time.Minute).
			add("hourly", schedule.Cron("1 * * * *"), time.Minute).start()
		c.until(10 * time.Hour)
		p.end()
		var hourly []time.Duration
		for _, run := range c.took() {
			if run.Job == "hourly" {
				hourly = append(hourly, run.Due.Sub(c.begin))
			}
		}
		minutes := func(all ...int) (d []time.Duration) {
			for _, m := range all {
				d = append(d, time.Duration(m)*time.Minute)
			}
			return d
		}
		assert.Equal(c, minutes(1, 61, 121, 181, 241, 421, 481, 541), hourly, "5:01 and 6:01 gave way to 7:01, which ran at 7:30")
		assert.Equal(c, []string{"hourly 5h1m0s to 6h1m0s"}, told.told)
		assert.Contains(c, told.log.String(), `level=WARN msg="schedule: due times were dropped" job=hourly count=2`)
	})
}

// A process is held up for hours, while another runs the job.
func TestFiresThatAnotherProcessRanAreNotMissed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		told := &notebook{begin: c.begin}
		behind := c.process(1, told.options()...).add("job", schedule.Every(time.Hour), time.Second)
		held := false
		behind.link.Fail(func(call string) (error, error) {
			if call == "claim" && !held {
				held = true
				time.Sleep(3*time.Hour + time.Minute)
			}
			return nil, nil
		})
		behind.start()
		other := c.process(2).add("job", schedule.Every(time.Hour), time.Second).start()
		c.sleep(6*time.Hour + 30*time.Minute)
		behind.end()
		other.end()
		assert.Len(c, c.fires(), 6)
		assert.Empty(c, told.told)
	})
}

func TestAJobsFirstFireAfterItsPlanChangedIsNotMissed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		told := &notebook{begin: c.begin}
		p := c.process(1).add("job", schedule.Every(24*time.Hour), time.Second).start()
		c.sleep(30 * time.Hour)
		p.end()
		q := c.process(2, told.options()...).add("job", schedule.Every(time.Hour), time.Second).start()
		c.sleep(2 * time.Hour)
		q.end()
		assert.Empty(c, told.told)
	})
}

func TestJitterLosesNoFireHoweverLongItIs(t *testing.T) {
	for jitter, try := range map[time.Duration]struct {
		plan schedule.Plan
		days int
	}{
		20 * time.Minute: {schedule.Cron("0 3 * * *"), 100},
		time.Hour:        {schedule.Every(10 * time.Minute), 1}, // longer than the period
	} {
		t.Run(fmt.Sprint(jitter), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				told := &notebook{begin: c.begin}
				p := c.process(1, append(told.options(), schedule.WithJitter(jitter))...).add("job", try.plan, time.Second).start()
				c.sleep(time.Duration(try.days) * 24 * time.Hour)
				p.end()
				fires := c.fires()
				last := c.begin
				for i, fire := range fires {
					assert.Equal(c, try.plan.Next(last), c.begin.Add(fire), "fire %d", i)
					last = c.begin.Add(fire)
				}
				assert.GreaterOrEqual(c, len(fires), 100)
				assert.Empty(c, told.told)
			})
		})
	}
}

func TestAJobThatWasRemovedWhileItsFireWaitedDoesNotRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1, schedule.WithWorkers(1)).
			add("long", schedule.Every(time.Hour), 10*time.Minute).
			add("removed", schedule.Cron("1 * * * *"), time.Second).start()
		c.until(time.Hour + 5*time.Minute)
		p.Remove("removed")
		c.until(time.Hour + 30*time.Minute)
		p.end()
		for _, run := range c.took() {
			assert.False(c, run.Job == "removed" && run.at > time.Hour, "it ran at %v", run.at)
		}
	})
}

// A job that is added while all workers are at work is looked up at once.
func TestAJobMayBeAddedWhileAllWorkersAreAtWork(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1, schedule.WithWorkers(1)).
			add("long", schedule.Every(time.Hour), 10*time.Minute).
			add("waits", schedule.Every(time.Hour), time.Second).start()
		c.until(time.Hour + 2*time.Minute)
		p.add("new", schedule.Cron("5 1 * * *"), time.Second)
		c.until(time.Hour + 30*time.Minute)
		p.end()
		var jobs []string
		for _, run := range c.took() {
			jobs = append(jobs, run.Job)
		}
		assert.Contains(c, jobs, "new", "its fire came due during the long run")
	})
}

func TestRunReturnsNilThoughTheDatabaseIsAwayWhenItEnds(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).job("job", schedule.Every(time.Minute), func(ctx context.Context, _ schedule.Run) error {
			<-ctx.Done()
			return nil
		}).start()
		c.sleep(70 * time.Second)
		p.link.Cut()
		c.sleep(time.Second)
		p.end() // it asserts that Run has returned nil
	})
}
