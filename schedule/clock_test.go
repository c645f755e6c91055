package schedule_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
)

const month = 30 * 24 * time.Hour

// clockAhead has two processes share an hourly job while the store's clock is ahead for
// an hour, and returns the fires that ran in the two days after that. The processes go on,
// or start again with each step of the clock.
func clockAhead(c *cluster, by time.Duration, restart bool, told *notebook, opts ...schedule.JobOption) []time.Duration {
	options := append(told.options(), schedule.WithJitter(time.Second))
	one := c.process(1, options...).add("job", schedule.Every(time.Hour), time.Second, opts...).start()
	two := c.process(2, options...).add("job", schedule.Every(time.Hour), time.Second, opts...).start()
	set := func(d time.Duration) {
		for _, p := range []*process{one, two} {
			if !restart {
				p.link.SetClock(d, 0)
				continue
			}
			p.end()
			p.link.SetClock(d, 0)
			p.start()
		}
	}
	c.until(3*time.Hour + 30*time.Minute)
	set(by)
	c.until(4*time.Hour + 30*time.Minute)
	set(0)
	c.took()
	c.until(52*time.Hour + 30*time.Minute)
	one.end()
	two.end()
	return c.fires()
}

func TestAForwardStepOfTheClockDoesNotSilenceAJobForLong(t *testing.T) {
	for name, opts := range lates {
		for _, by := range []time.Duration{month, 20 * 365 * 24 * time.Hour} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", by ", by, ", restarted ", restart), func(t *testing.T) {
					inCluster(t, func(c *cluster) {
						told := &notebook{begin: c.begin}
						var want []time.Duration
						for hour := 5; hour <= 52; hour++ {
							want = append(want, time.Duration(hour)*time.Hour)
						}
						assert.Equal(c, want, clockAhead(c, by, restart, told, opts...))
						assert.Contains(c, told.log.String(), `level=WARN msg="schedule: a job is decided up to a time in the future`)
					})
				})
			}
		}
	}
}

// A process learns only from the reply to its claim that the clock has stepped back.
func TestAFireThatIsFarInTheFutureByTheReplyToItsClaimIsGivenBack(t *testing.T) {
	inCluster(t, func(c *cluster) {
		told := &notebook{begin: c.begin}
		p := c.process(1, told.options()...).add("job", schedule.Every(time.Hour), time.Second).add("other", schedule.Every(time.Hour), time.Second).start()
		c.until(2*time.Hour + 30*time.Minute)
		p.link.SetClock(0, -month) // its samples are from when the clock was ahead
		c.until(9*time.Hour + 30*time.Minute)
		p.end()
		var hours []int
		for _, run := range c.took() {
			if run.Job == "job" {
				hours = append(hours, int(run.Due.Sub(c.begin)/time.Hour))
			}
			assert.Less(c, run.at-run.Due.Sub(c.begin), time.Minute, "%s of %v", run.Job, run.Due)
			assert.GreaterOrEqual(c, run.at, run.Due.Sub(c.begin), "%s of %v", run.Job, run.Due)
		}
		assert.Equal(c, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, hours)
		assert.Contains(c, told.log.String(), "the database's clock has stepped back")
	})
}

// A new primary's clock is 10 s behind that of the old one. A process that claims by the old clock waits
// for the due time, and is stopped meanwhile.
func TestAFireThatIsClaimedEarlyByAProcessThatStopsRunsInAnother(t *testing.T) {
	for name, opts := range combinations() {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				p := c.process(1).add("job", atThree, time.Second, opts...)
				p.link.SetClock(0, -10*time.Second)
				p.start()
				c.until(3*time.Hour - 15*time.Second)
				q := c.process(2).add("job", atThree, time.Second, opts...).start()
				c.until(3*time.Hour - 5*time.Second)
				assert.Len(c, c.state("job").Runs, 1, "it is not claimed yet")
				p.end()
				c.until(3*time.Hour + time.Minute)
				q.end()
				runs := c.took()
				if assert.Len(c, runs, 1) {
					assert.Equal(c, 2, runs[0].by)
					assert.Equal(c, 3*time.Hour, runs[0].at)
				}
			})
		})
	}
}

// A step of some hours is not taken back: that those fires ran may be true. It is told.
func TestASmallForwardStepOfTheClockIsToldAndWaitedOut(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.unasked = true
		told := &notebook{begin: c.begin}
		fires := clockAhead(c, 10*time.Hour, true, told)
		var want []time.Duration
		for hour := 15; hour <= 52; hour++ { // 14:00 ran at 4:00
			want = append(want, time.Duration(hour)*time.Hour)
		}
		assert.Equal(c, want, fires)
		assert.Contains(c, told.log.String(), "a job is decided up to a time in the future")
	})
}

// Only a claim that takes decided back can help: one without it is refused for a month.
func TestControlAJobStaysSilentIfDecidedIsNotTakenBack(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.store = neverTakesBack{c.store}
		assert.Empty(c, clockAhead(c, month, true, &notebook{begin: c.begin}), "the test shows nothing")
	})
}

// The samples of a process may be from before a step of the clock. It must not take back
// what others decide by the clock as it is now.
func TestAProcessWithAnOldSampleOfTheClockTakesNothingBack(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1, schedule.WithLogger(slog.New(slog.DiscardHandler))).add("job", schedule.Every(time.Hour), time.Second)
		p.link.SetClock(month, 0)
		p.start()
		c.until(3*time.Hour + 30*time.Minute)
		q := c.process(2).add("job", schedule.Every(time.Hour), time.Second)
		q.link.SetClock(month, month)
		q.start()
		c.until(10*time.Hour + 30*time.Minute)
		p.end()
		q.end()
		assert.Positive(c, q.link.Counted()["claim"])
		runs := c.took()
		assert.Len(c, runs, 10)
		for i, run := range runs[1:] {
			assert.Equal(c, runs[i].Due.Add(time.Hour), run.Due, "taken back")
		}
	})
}

// A process waits for a due time under its claim, and loses the lease meanwhile. The due time is given back then, or
// cannot be given back yet.
func TestARunWhoseLeaseIsLostBeforeItsDueTimeDoesNotBegin(t *testing.T) {
	for name, opts := range combinations() {
		for _, back := range []time.Duration{50 * time.Second, 70 * time.Second} {
			inCluster(t, func(c *cluster) {
				opts := append(slices.Clone(opts), schedule.With(mongolock.TTL(6*time.Second)))
				p := c.process(1)
				p.link.To = nowAhead{c.store, 20 * time.Second}
				p.add("job", schedule.Every(time.Minute), 10*time.Second, opts...).start()
				q := c.process(2).add("job", schedule.Every(time.Minute), 10*time.Second, opts...).start()
				c.until(42 * time.Second)
				p.link.Cut()
				c.until(back)
				p.link.Fail(nil)
				c.until(85 * time.Second)
				for _, run := range c.took() {
					assert.False(c, run.by == 1 && run.at == time.Minute, "%s, back at %v: it began", name, back)
				}
				c.until(5*time.Minute + 30*time.Second)
				p.end()
				q.end()
				assert.GreaterOrEqual(c, len(c.took()), 4, name)
			})
		}
	}
}
