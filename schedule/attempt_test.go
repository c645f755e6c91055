package schedule_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
)

// dying begins a run at 10 s in a process whose connection to the store is cut at 12 s.
func dying(c *cluster, opts ...schedule.JobOption) (dead, other *process) {
	opts = append(opts, schedule.With(mongolock.TTL(6*time.Second)))
	dead = c.process(1).job("job", schedule.Every(10*time.Second), func(ctx context.Context, _ schedule.Run) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, opts...).start()
	c.sleep(9 * time.Second)
	other = c.process(2).add("job", schedule.Every(10*time.Second), time.Second, opts...).start()
	other.link.Fail(func(call string) (error, error) {
		if call == "claim" && time.Since(c.begin) < 10001*time.Millisecond {
			time.Sleep(time.Millisecond) // the other gets the first fire
		}
		return nil, nil
	})
	c.sleep(3 * time.Second)
	dead.link.Cut()
	return dead, other
}

func TestAJobWhoseProcessDiedRunsAgainAtTheNextDueTime(t *testing.T) {
	inCluster(t, func(c *cluster) {
		dead, other := dying(c, schedule.AtMostOnce())
		c.sleep(20 * time.Second)
		dead.stop()
		other.end()
		<-dead.over
		var got []string
		for _, run := range c.took() {
			got = append(got, fmt.Sprintf("%v by %d at %v attempt %d", run.Due.Sub(c.begin), run.by, run.at, run.Attempt))
		}
		assert.Equal(c, []string{"10s by 1 at 10s attempt 1", "20s by 2 at 20s attempt 1", "30s by 2 at 30s attempt 1"}, got)
		past := c.state("job").Past
		assert.Equal(c, string(schedule.Died), past[len(past)-1].Outcome)
		assert.Equal(c, "process-1", past[len(past)-1].Owner)
	})
}

func TestAJobWhoseProcessDiedRunsAgainAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		dead, other := dying(c)
		c.sleep(20 * time.Second)
		dead.stop()
		other.end()
		<-dead.over
		runs := c.took()
		require.GreaterOrEqual(c, len(runs), 2, "not repeated")
		first, second := runs[0], runs[1]
		assert.Equal(c, 2, second.by)
		assert.Equal(c, 2, second.Attempt)
		assert.Equal(c, first.Due, second.Due)
		assert.Greater(c, second.Token(), first.Token())
		// Its last renewal was at 12 s or before, so it ran out by 18 s.
		assert.Greater(c, second.at, 16*time.Second)
		assert.Less(c, second.at, 18100*time.Millisecond)
		past := c.state("job").Past
		assert.Equal(c, string(schedule.Died), past[len(past)-1].Outcome, "the first attempt")
	})
}

func TestARunThatLostItsLeaseIsRepeatedAtOnce(t *testing.T) {
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				var all []*process
				for i := range processes {
					p := c.process(i).add("job", schedule.Every(time.Hour), 20*time.Second,
						schedule.With(mongolock.TTL(6*time.Second)))
					p.link.Fail(func(call string) (before, after error) {
						if now := time.Since(c.begin); call == "renew" && now < time.Hour+10*time.Second {
							return jobstest.ErrCut, nil // everything else arrives, the end of the run too
						}
						return nil, nil
					})
					all = append(all, p.start())
				}
				c.sleep(time.Hour + time.Minute)
				for _, p := range all {
					p.end()
				}
				var got []string
				for _, run := range c.took() {
					got = append(got, fmt.Sprintf("%v attempt %d, %v after it", run.Due.Sub(c.begin), run.Attempt, (run.at-time.Hour).Truncate(time.Second)))
				}
				assert.Equal(c, []string{"1h0m0s attempt 1, 0s after it", "1h0m0s attempt 2, 6s after it"}, got)
				past := c.state("job").Past
				require.Len(c, past, 2)
				assert.Equal(c, string(schedule.Succeeded), past[0].Outcome)
				assert.Equal(c, string(schedule.Died), past[1].Outcome)
			})
		})
	}
}

func TestAJobThatKillsItsProcessIsTriedThreeTimes(t *testing.T) {
	inCluster(t, func(c *cluster) {
		for i := range 5 {
			p := c.process(i, schedule.WithJitter(time.Second))
			p.job("deadly", schedule.Every(time.Minute), func(ctx context.Context, run schedule.Run) error {
				if run.Due.Sub(c.begin) == time.Minute {
					p.link.Cut()
				}
				<-ctx.Done()
				return nil
			}, schedule.With(mongolock.TTL(time.Second))).start()
		}
		c.sleep(150 * time.Second)
		var minutes []int
		for _, run := range c.took() {
			minutes = append(minutes, int(run.Due.Sub(c.begin)/time.Minute))
		}
		assert.Equal(c, []int{1, 1, 1, 2}, minutes, "the fires of the runs, in minutes")
	})
}

// Three deploys in a row stop a nightly run. Then one more thing happens to it.
func TestARunThatWasStoppedThreeTimesIsNotGivenUp(t *testing.T) {
	for _, dies := range []bool{true, false} {
		t.Run(map[bool]string{true: "its process dies", false: "the reply to its claim is lost"}[dies], func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				for deploy := range 6 {
					p := c.process(deploy)
					p.job("nightly", atThree, func(ctx context.Context, r schedule.Run) error {
						switch {
						case r.Attempt > 4 || r.Attempt == 4 && !dies:
							return nil
						case r.Attempt == 4:
							p.link.Cut()
						}
						<-ctx.Done()
						return ctx.Err()
					}, schedule.With(mongolock.TTL(6*time.Second)))
					lost := dies || deploy != 3
					p.link.Fail(func(call string) (before, after error) {
						if call == "claim" && !lost {
							lost = true
							return nil, jobstest.ErrCut
						}
						return nil, nil
					})
					p.start()
					c.until(3*time.Hour + time.Duration(deploy)*time.Minute)
					c.sleep(30 * time.Second)
					p.end()
				}
				past := c.state("nightly").Past
				assert.Equal(c, string(schedule.Succeeded), past[0].Outcome)
				for _, r := range past {
					assert.NotContains(c, r.Error, "given up")
				}
			})
		})
	}
}

// The one process that is left gives a due time up, and gets no reply.
func TestADueTimeThatIsGivenUpIsToldAlthoughTheReplyIsLost(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.third(time.Second, time.Hour)
		told := &notebook{begin: c.begin}
		p := c.process(1, told.options()...).add("job", schedule.Every(time.Hour), time.Second)
		lost := false
		p.link.Fail(func(call string) (before, after error) {
			if call == "end" && !lost {
				lost = true
				return nil, jobstest.ErrCut
			}
			return nil, nil
		})
		p.start()
		c.sleep(10 * time.Minute)
		p.end()
		assert.Equal(c, []string{"job 0s to 0s"}, told.told)
	})
}

// Two processes give a due time up at the same moment, and the command of one of them is lost.
func TestADueTimeThatIsGivenUpIsToldOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.third(time.Second, time.Hour)
		told := &notebook{begin: c.begin}
		p := c.process(1, told.options()...).add("job", schedule.Every(time.Hour), time.Second)
		q := c.process(2, told.options()...).add("job", schedule.Every(time.Hour), time.Second)
		lost := false
		p.link.Fail(func(call string) (before, after error) {
			if call == "claim" && !lost {
				lost = true
				time.Sleep(10 * time.Millisecond) // virtual: the other one's is applied meanwhile
				return jobstest.ErrCut, nil
			}
			return nil, nil
		})
		q.link.Fail(func(call string) (before, after error) {
			if call == "claim" {
				time.Sleep(5 * time.Millisecond)
			}
			return nil, nil
		})
		p.start()
		q.start()
		c.sleep(10 * time.Minute)
		p.end()
		q.end()
		assert.True(c, lost)
		assert.Equal(c, []string{"job 0s to 0s"}, told.told)
	})
}

// The one process that is left cannot give a due time up for a while, and wins each other one.
func TestADueTimeThatCannotBeGivenUpYetIsGivenUpLater(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.third(time.Second, time.Hour)
		told := &notebook{begin: c.begin}
		p := c.process(1, told.options()...).add("job", schedule.Every(time.Hour), time.Second, schedule.Beside())
		failed := 0
		p.link.Fail(func(call string) (before, after error) {
			if call == "end" && failed < 2 {
				failed++
				return jobstest.ErrCut, nil
			}
			return nil, nil
		})
		p.start()
		c.sleep(10 * time.Minute)
		p.end()
		assert.Equal(c, []string{"job 0s to 0s"}, told.told)
	})
}

// A run is stopped, and the claims that repeat it have no replies. From then on the job kills each process.
func TestAStopCountsOnceAmongTheAttempts(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(0).add("job", atThree, time.Hour).start()
		c.until(3*time.Hour + time.Second)
		p.end()
		for nr := 1; nr < 8; nr++ {
			q := c.process(nr)
			lost := 0
			q.link.Fail(func(call string) (before, after error) {
				if call == "claim" && nr == 1 && lost < 2 {
					lost++
					return nil, jobstest.ErrCut
				}
				return nil, nil
			})
			q.job("job", atThree, func(ctx context.Context, _ schedule.Run) error {
				q.link.Cut()
				<-ctx.Done()
				return ctx.Err()
			}).start()
			c.sleep(3 * time.Minute)
			q.stop()
			<-q.over
		}
		assert.Len(c, c.took(), 4, "one that was stopped, and three that died")
	})
}

// nowAhead shows the clock of another member, which is ahead of the one that the run's end is written by.
type nowAhead struct {
	jobs.Store
	by time.Duration
}

func (n nowAhead) Read(ctx context.Context, names []string, detail jobs.Detail) ([]jobs.State, error) {
	all, err := n.Store.Read(ctx, names, detail)
	for i := range all {
		all[i].Now = all[i].Now.Add(n.by)
	}
	return all, err
}

func (n nowAhead) Now() time.Time { return n.Store.Now().Add(n.by) }

// The third attempt at a due time is alive, and only seems to be over.
func TestARunIsNotGivenUpByAnotherClockThanItsEndIsWrittenBy(t *testing.T) {
	inCluster(t, func(c *cluster) {
		run := c.third(6*time.Second, time.Minute)
		p := c.process(1)
		p.link.To = nowAhead{c.store, 10 * time.Second}
		p.add("job", schedule.Every(time.Minute), time.Second).start()
		for range 40 {
			c.sleep(2 * time.Second)
			_, err := c.store.Renew(t.Context(), run.Ref, run.TTL, true)
			require.NoError(c, err, "after %v", time.Since(c.begin))
		}
		c.sleep(3 * time.Minute)
		p.end()
		assert.NotEmpty(c, c.took(), "the job does not go on after its death")
	})
}

// The only worker of a process is busy between the read that shows a run as over and what is done about it.
func TestARunThatWasRenewedSinceItWasReadIsNotGivenUp(t *testing.T) {
	inCluster(t, func(c *cluster) {
		run := c.third(6*time.Second, time.Hour)
		p := c.process(1, schedule.WithWorkers(1))
		p.link.To = nowAhead{c.store, 10 * time.Second}
		p.link.Fail(func(call string) (before, after error) {
			if call == "read" {
				time.Sleep(time.Second) // virtual: the other job's due time comes meanwhile
			}
			return nil, nil
		})
		p.add("job", schedule.Every(time.Hour), time.Second).add("long", schedule.Every(time.Minute), 3*time.Minute)
		for second := 0; second < 600; second += 2 {
			if second == 48 {
				p.start()
			}
			c.sleep(2 * time.Second)
			_, err := c.store.Renew(t.Context(), run.Ref, run.TTL, true)
			require.NoError(c, err, "after %v", time.Since(c.begin))
		}
		p.end()
		assert.NotEmpty(c, c.took())
	})
}

// The claim that repeats a run has no reply, and to undo it takes a while. No other process looks.
func TestARunWhoseRepetitionIsUndoneLateIsRepeatedSoon(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("nightly", atThree, 10*time.Minute).start()
		c.until(3*time.Hour + time.Minute)
		p.end()
		q := c.process(2).add("nightly", atThree, 10*time.Minute)
		lost := false
		q.link.Fail(func(call string) (before, after error) {
			switch {
			case call == "claim" && !lost:
				lost = true
				return nil, jobstest.ErrCut
			case call == "undo" && time.Since(c.begin) < 3*time.Hour+time.Minute+4*time.Second:
				return jobstest.ErrCut, nil
			}
			return nil, nil
		})
		q.start()
		c.sleep(time.Minute)
		q.end()
		runs := c.took()
		require.Len(c, runs, 2, "a night later")
		assert.Equal(c, 2, runs[1].Attempt)
	})
}

func TestARunsContextEndsBeforeAnotherRunCanBegin(t *testing.T) {
	inCluster(t, func(c *cluster) {
		ended := make(chan time.Duration, 1)
		dead := c.process(1).job("job", schedule.Every(10*time.Second), func(ctx context.Context, run schedule.Run) error {
			<-ctx.Done()
			ended <- time.Since(c.begin)
			assert.ErrorIs(c, run.Lease.Err(), mongolock.ErrLost)
			return nil
		}, schedule.With(mongolock.TTL(6*time.Second))).start()
		c.sleep(12 * time.Second)
		dead.link.Cut()
		c.sleep(10 * time.Second)
		dead.stop()
		<-dead.over
		until := c.state("job").Runs[0].ExpireAt.Sub(c.begin)
		assert.LessOrEqual(c, <-ended, until-600*time.Millisecond, "another could have the job from %v", until)
	})
}
