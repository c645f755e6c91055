package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/schedule"
)

func TestFiveProcessesWhoseTimersAreApartRunEachTickOnce(t *testing.T) {
	for name, opts := range lates {
		for _, takes := range []time.Duration{time.Millisecond, 150 * time.Millisecond, 700 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, runs of %v", name, takes), func(t *testing.T) {
				inCluster(t, func(c *cluster) { sixtyTicks(c, takes, opts...) })
			})
		}
	}
}

// sixtyTicks has five processes, whose timers are up to 900 ms apart, run each of 60 ticks
// once.
func sixtyTicks(c *cluster, takes time.Duration, opts ...schedule.JobOption) {
	var all []*process
	for i := range 5 {
		p := c.process(i, schedule.WithJitter(900*time.Millisecond))
		all = append(all, p.add("tick", schedule.Every(time.Second), takes, opts...).start())
	}
	c.sleep(61*time.Second - time.Millisecond) // the last late timer is included, and no tick more
	for _, p := range all {
		p.end()
	}
	var want []time.Duration
	for i := range 60 {
		want = append(want, time.Duration(i+1)*time.Second)
	}
	assert.Equal(c, want, c.fires())
	by := map[int]int{}
	for _, run := range c.took() {
		by[run.by]++
	}
	assert.Len(c, by, 5, "jitter should let each process have some")
}

// A late timer costs no due time: one that comes during a run begins after it.
func TestALateTimerCostsNoDueTime(t *testing.T) {
	for takes, want := range map[time.Duration][]time.Duration{
		300 * time.Millisecond: seconds(1, 2, 3, 4, 5, 6),
		999 * time.Millisecond: seconds(1, 2, 3, 4, 5, 6),
	} {
		for _, late := range []time.Duration{0, 500 * time.Millisecond, 900 * time.Millisecond} {
			t.Run(fmt.Sprint("runs of ", takes, ", late by ", late), func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					first := true
					p := c.process(1).add("tick", schedule.Every(time.Second), takes)
					p.link.Fail(func(call string) (error, error) {
						if call == "claim" && first {
							first = false
							time.Sleep(late)
						}
						return nil, nil
					})
					p.start()
					c.sleep(6999 * time.Millisecond)
					p.end()
					assert.Equal(c, want, c.fires())
				})
			})
		}
	}
}

func TestARunNeverBeginsBeforeItsFire(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("tick", schedule.Every(time.Second), 0).start()
		c.sleep(10 * time.Second)
		p.end()
		runs := c.took()
		assert.NotEmpty(c, runs)
		for _, run := range runs {
			assert.GreaterOrEqual(c, run.at, run.Due.Sub(c.begin))
		}
	})
}

func TestAFireCostsEachProcessOneClaimAndTheLosersOneLook(t *testing.T) {
	inCluster(t, func(c *cluster) {
		one := c.process(1).add("job", schedule.Every(time.Hour), time.Second).start()
		c.sleep(time.Minute)
		two := c.process(2, schedule.WithJitter(time.Second)).add("job", schedule.Every(time.Hour), time.Second).start()
		c.sleep(time.Minute)
		one.link.Counted()
		two.link.Counted()
		for hour := 1; hour <= 24; hour++ {
			c.until(time.Duration(hour)*time.Hour + time.Minute)
			sum := map[string]int{}
			for _, p := range []*process{one, two} {
				for call, n := range p.link.Counted() {
					sum[call] += n
				}
			}
			// A run of a second in a lease of 30 s is not renewed.
			assert.Equal(c, map[string]int{"claim": 2, "end": 1, "read": 1}, sum, "hour %d", hour)
			c.sleep(50 * time.Minute)
			assert.Empty(c, one.link.Counted(), "between fires")
			assert.Empty(c, two.link.Counted(), "between fires")
		}
		one.end()
		two.end()
	})
}

// The table "What is sent" of docs/internals/schedule.md, counted over ten due times, a minute apart, that one
// process gets and another does not. (On MongoDB a look is a find, and a hello if a run is
// under way; all else is one command: TestMongoAClaimIsOneCommandWonOrLost,
// TestMongoBetweenFiresNothingIsSent, TestMongoALookAfterALostClaimIsOneFind.)
func TestTenFiresSendTheCommandsOfTheProtocol(t *testing.T) {
	type calls = map[string]int
	for name, try := range map[string]struct {
		takes       time.Duration
		opts        []schedule.JobOption
		wins, loses calls
	}{
		"by default":                  {time.Second, nil, calls{"claim": 10, "end": 10}, calls{"claim": 10, "read": 10}},
		"renewed, at a third of 30 s": {25 * time.Second, nil, calls{"claim": 10, "end": 10, "renew": 20}, calls{"claim": 10, "read": 20}},
		"each": {time.Second, []schedule.JobOption{schedule.Each()},
			calls{"claim": 10, "end": 10}, calls{"claim": 10, "read": 10}},
		"at most once": {time.Second, []schedule.JobOption{schedule.AtMostOnce()},
			calls{"claim": 10, "end": 10}, calls{"claim": 10, "read": 10}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				wins := c.process(1).add("job", schedule.Every(time.Minute), try.takes, try.opts...).start()
				loses := c.process(2).add("job", schedule.Every(time.Minute), try.takes, try.opts...)
				loses.link.Delay(time.Millisecond)
				loses.start()
				c.sleep(30 * time.Second)
				wins.link.Counted() // a look at all jobs
				loses.link.Counted()
				c.sleep(10*time.Minute + 5*time.Second) // the last look comes 15 s after its fire
				assert.Equal(c, try.wins, wins.link.Counted(), "sent by the process that gets the fires")
				assert.Equal(c, try.loses, loses.link.Counted(), "sent by the other")
				wins.end()
				loses.end()
			})
		})
	}
}
