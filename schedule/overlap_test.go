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
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
)

func TestTheLatestOfTheDueTimesDuringARunFollowsIt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		one := c.process(1).add("long", schedule.Every(time.Second), 2500*time.Millisecond).start()
		two := c.process(2).add("long", schedule.Every(time.Second), 2500*time.Millisecond).start()
		c.sleep(8900 * time.Millisecond)
		one.end()
		two.end()
		assert.Equal(c, seconds(1, 3, 6, 8), c.fires())
		for i, run := range c.took() {
			assert.Equal(c, time.Second+time.Duration(i)*2500*time.Millisecond, run.at, "when run %d begins", i)
		}
	})
}

func TestEachOfTheDueTimesDuringARunFollowsItInOrder(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opts := []schedule.JobOption{schedule.Each()}
		takes := func(_ context.Context, run schedule.Run) error { // all others are short
			if run.Due.Equal(c.begin.Add(2 * time.Second)) {
				time.Sleep(3500 * time.Millisecond)
			}
			return nil
		}
		one := c.process(1).job("uneven", schedule.Every(time.Second), takes, opts...).start()
		two := c.process(2).job("uneven", schedule.Every(time.Second), takes, opts...).start()
		c.sleep(7900 * time.Millisecond)
		one.end()
		two.end()
		var fires, at []time.Duration
		for _, run := range c.took() {
			fires, at = append(fires, run.Due.Sub(c.begin)), append(at, run.at)
		}
		assert.Equal(c, seconds(1, 2, 3, 4, 5, 6, 7), fires, "in the order of their beginning")
		assert.Equal(c, seconds(1, 2, 5.5, 5.5, 5.5, 6, 7), at)
	})
}

// A process that was held up, and finds a run under way, sends no claim until that has
// ended.
func TestAProcessThatFellBehindAsksEverMoreRarelyWhileARunIsUnderWay(t *testing.T) {
	for name, opts := range map[string][]schedule.JobOption{"each": {schedule.Each()}, "each that is not old": {schedule.Each(), schedule.MaxLate(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.process(1).add("job", schedule.Every(time.Second), 9500*time.Millisecond, opts...).start()
				behind := c.process(2).add("job", schedule.Every(time.Second), time.Second, opts...)
				held := false
				behind.link.Fail(func(call string) (error, error) {
					if call == "claim" && !held {
						held = true
						time.Sleep(4500 * time.Millisecond)
					}
					return nil, nil
				})
				behind.start()
				c.sleep(9900 * time.Millisecond)
				sent := behind.link.Counted()
				assert.Equal(c, 1, sent["claim"], "claims in the 4 s in which it was behind")
				assert.GreaterOrEqual(c, sent["read"], 2)
				assert.LessOrEqual(c, sent["read"], 10)
			})
		})
	}
}

// Several due times come during a run, and the job is paused, or the run dies.
func TestAProcessThatIsBehindDoesNotAskOnAndOn(t *testing.T) {
	for _, pause := range []bool{true, false} {
		for name, opts := range lates {
			t.Run(fmt.Sprint(name, ", pause ", pause), func(t *testing.T) {
				t.Parallel()
				inCluster(t, func(c *cluster) {
					p := c.process(1).add("job", schedule.Every(10*time.Minute), 25*time.Minute, opts...)
					p.start()
					c.until(15 * time.Minute)
					cut := map[string]error{}
					if pause {
						require.NoError(c, p.Pause(c.Context(), "job"))
					} else {
						cut["renew"], cut["end"] = jobstest.ErrCut, jobstest.ErrCut
					}
					p.link.Fail(func(call string) (before, after error) {
						time.Sleep(time.Millisecond) // time goes on while a process asks on and on
						return cut[call], nil
					})
					p.link.Counted()
					for range 30 {
						c.sleep(time.Minute)
						sent := p.link.Counted()
						require.Less(c, sent["claim"]+sent["read"], map[bool]int{true: 5, false: 300}[pause], "in a minute, after %v", time.Since(c.begin))
					}
					p.link.Fail(nil)
					if pause {
						require.NoError(c, p.Resume(c.Context(), "job"))
					}
					c.took()
					c.sleep(30 * time.Minute)
					p.end()
					assert.NotEmpty(c, c.took(), "it does not go on")
				})
			})
		}
	}
}

// A process that takes over a run begins late, and the next due time comes meanwhile.
func TestADueTimeDuringARepeatedRunRunsToo(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opts := []schedule.JobOption{schedule.Each(), schedule.With(mongolock.TTL(1900 * time.Millisecond))}
		dead := c.process(1).add("tick", schedule.Every(2*time.Second), 400*time.Millisecond, opts...).start()
		other := c.process(2).add("tick", schedule.Every(2*time.Second), 400*time.Millisecond, opts...)
		other.link.Fail(func(string) (error, error) {
			time.Sleep(time.Millisecond) // it is always a little later than the first
			return nil, nil
		})
		other.start()
		c.sleep(2200 * time.Millisecond)
		dead.link.Cut()
		c.sleep(7 * time.Second)
		dead.stop()
		other.end()
		<-dead.over
		assert.Equal(c, seconds(2, 2, 4, 6, 8), c.fires())
	})
}

// A configuration is read again during a run: its job is removed, and added with another plan.
func TestADueTimeDuringTheRunOfARemovedJobFollowsIt(t *testing.T) {
	for name, opts := range lates {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				p := c.process(1).add("job", atThree, 50*time.Second, opts...).start()
				c.until(3*time.Hour + time.Second)
				p.Remove("job")
				p.add("job", schedule.Cron("30 0 3 * * *"), time.Second, opts...)
				c.until(3*time.Hour + 90*time.Second)
				p.end()
				assert.Equal(c, []time.Duration{3 * time.Hour, 3*time.Hour + 30*time.Second}, c.fires())
			})
		})
	}
}

// A deploy adds Beside, or takes it away, while a run waits to be repeated.
func TestARunOfOtherOptionsIsRepeated(t *testing.T) {
	for _, first := range []bool{false, true} {
		inCluster(t, func(c *cluster) {
			opts := map[bool][]schedule.JobOption{true: {schedule.Beside()}}
			for nr, beside := range []bool{first, !first, first} {
				p := c.process(nr).add("job", atThree, 2*time.Hour, opts[beside]...).start()
				c.until(time.Duration(24*nr+4) * time.Hour)
				p.end()
			}
			p := c.process(3).add("job", atThree, time.Minute, opts[first]...).start()
			c.until(4 * 24 * time.Hour)
			p.end()
			runs := map[time.Duration]int{}
			for _, run := range c.took() {
				runs[run.Due.Sub(c.begin)] = run.Attempt
			}
			assert.Equal(c, map[time.Duration]int{3 * time.Hour: 2, 27 * time.Hour: 2, 51 * time.Hour: 2, 75 * time.Hour: 1}, runs, "Beside at first: %v", first)
			assert.Empty(c, c.state("job").Runs)
		})
	}
}

func TestRunsMayOverlapWhereThatIsAllowed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		one := c.process(1).add("long", schedule.Every(time.Second), 2500*time.Millisecond, schedule.Beside()).start()
		two := c.process(2).add("long", schedule.Every(time.Second), 2500*time.Millisecond, schedule.Beside()).start()
		c.sleep(5400 * time.Millisecond)
		assert.Len(c, c.state("long").Runs, 3, "under way")
		one.end()
		two.end()
		assert.Equal(c, seconds(1, 2, 3, 4, 5), c.fires())
	})
}
