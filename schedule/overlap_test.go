package schedule_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
)

func TestAFireThatComesDueDuringARunIsSkipped(t *testing.T) {
	inCluster(t, func(c *cluster) {
		one := c.process(1).add("long", schedule.Every(time.Second), 2500*time.Millisecond).start()
		late := c.process(2, schedule.WithJitter(900*time.Millisecond)).add("long", schedule.Every(time.Second), 2500*time.Millisecond).start()
		c.sleep(9900 * time.Millisecond)
		one.end()
		late.end()
		assert.Equal(c, seconds(1, 4, 7), c.fires())
	})
}

func TestTheLastOfTheFiresThatComeDueDuringARunIsQueued(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opt := schedule.OnOverlap(schedule.QueueOne)
		one := c.process(1).add("long", schedule.Every(time.Second), 2500*time.Millisecond, opt).start()
		two := c.process(2).add("long", schedule.Every(time.Second), 2500*time.Millisecond, opt).start()
		c.sleep(8900 * time.Millisecond)
		one.end()
		two.end()
		assert.Equal(c, seconds(1, 3, 6, 8), c.fires())
		for i, run := range c.took() {
			assert.Equal(c, time.Second+time.Duration(i)*2500*time.Millisecond, run.at, "when run %d begins", i)
		}
	})
}

func TestAllFiresThatComeDueDuringARunAreQueuedInOrder(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opts := []schedule.JobOption{schedule.OnOverlap(schedule.QueueAll), schedule.OnMissed(schedule.All)}
		takes := func(_ context.Context, run schedule.Run) error { // all others are short
			if run.Fire.Equal(c.begin.Add(2 * time.Second)) {
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
			fires, at = append(fires, run.Fire.Sub(c.begin)), append(at, run.at)
		}
		assert.Equal(c, seconds(1, 2, 3, 4, 5, 6, 7), fires, "in the order of their beginning")
		assert.Equal(c, seconds(1, 2, 5.5, 5.5, 5.5, 6, 7), at)
	})
}

// A process that was held up, and finds a run under way, sends no claim until that has
// ended.
func TestAProcessThatFellBehindAsksEverMoreRarelyWhileARunIsUnderWay(t *testing.T) {
	for _, overlap := range []schedule.Overlap{schedule.Skip, schedule.QueueOne, schedule.QueueAll} {
		t.Run(string(overlap), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				opts := []schedule.JobOption{schedule.OnMissed(schedule.All), schedule.OnOverlap(overlap)}
				c.process(1).add("job", schedule.Every(time.Second), 9500*time.Millisecond, opts...).start()
				behind := c.process(2).add("job", schedule.Every(time.Second), time.Second, opts...)
				held := false
				behind.link.fail(func(call string) (error, error) {
					if call == "claim" && !held {
						held = true
						time.Sleep(4500 * time.Millisecond)
					}
					return nil, nil
				})
				behind.start()
				c.sleep(9900 * time.Millisecond)
				sent := behind.link.counted()
				assert.Equal(c, 1, sent["claim"], "claims in the 4 s in which it was behind")
				assert.GreaterOrEqual(c, sent["look"], 2)
				assert.LessOrEqual(c, sent["look"], 10)
			})
		})
	}
}

// A process that takes over a run begins late, and the next fire comes due meanwhile.
func TestAFireThatComesDueDuringARepeatedRunIsRunToo(t *testing.T) {
	for overlap, want := range map[schedule.Overlap][]time.Duration{
		schedule.Skip:     seconds(2, 2, 4, 6, 8), // the default
		schedule.QueueAll: seconds(2, 2, 4, 6, 8),
	} {
		t.Run(string(overlap), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				opts := []schedule.JobOption{
					schedule.OnOverlap(overlap), schedule.OnMissed(schedule.All), schedule.OnDeath(schedule.AtOnce),
					schedule.Lease(mongolock.TTL(1900 * time.Millisecond)),
				}
				dead := c.process(1).add("tick", schedule.Every(2*time.Second), 400*time.Millisecond, opts...).start()
				other := c.process(2).add("tick", schedule.Every(2*time.Second), 400*time.Millisecond, opts...)
				other.link.fail(func(string) (error, error) {
					time.Sleep(time.Millisecond) // it is always a little later than the first
					return nil, nil
				})
				other.start()
				c.sleep(2200 * time.Millisecond)
				dead.link.cut()
				c.sleep(7 * time.Second)
				dead.stop()
				other.end()
				<-dead.over
				assert.Equal(c, want, c.fires())
			})
		})
	}
}

func TestAQueuedFireRunsThoughItIsOld(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("long", schedule.Every(time.Hour), 90*time.Minute, schedule.OnOverlap(schedule.QueueOne)).start()
		c.sleep(4*time.Hour + 20*time.Minute)
		p.end()
		var at []time.Duration
		for _, run := range c.took() {
			at = append(at, run.at)
		}
		assert.Equal(c, []time.Duration{time.Hour, 150 * time.Minute, 4 * time.Hour}, at)
	})
}

func TestRunsMayOverlapWhereThatIsAllowed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opt := schedule.OnOverlap(schedule.Allow)
		one := c.process(1).add("long", schedule.Every(time.Second), 2500*time.Millisecond, opt).start()
		two := c.process(2).add("long", schedule.Every(time.Second), 2500*time.Millisecond, opt).start()
		c.sleep(5400 * time.Millisecond)
		assert.Len(c, c.state("long").Runs, 3, "under way")
		one.end()
		two.end()
		assert.Equal(c, seconds(1, 2, 3, 4, 5), c.fires())
	})
}

func TestTheObserverIsToldOfFiresThatARunSkips(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var told []string
		p := c.process(1, schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Skipped {
				told = append(told, fmt.Sprint(e.Run.Fire.Sub(c.begin), " skips up to ", e.Fire.Sub(c.begin)))
			}
		}))
		p.add("long", schedule.Every(time.Second), 2500*time.Millisecond).add("short", schedule.Every(time.Second), 0).start()
		c.sleep(7 * time.Second)
		p.end()
		assert.Equal(c, []string{"1s skips up to 3s", "4s skips up to 6s"}, told)
	})
}
