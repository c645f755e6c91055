package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
)

func TestAClaimWhoseReplyIsLostIsUndoneAndTheFireRunsOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", schedule.Every(10*time.Second), time.Second).start()
		lost := 0
		p.link.Fail(func(call string) (error, error) {
			if call == "claim" && lost < 3 {
				lost++
				return nil, jobstest.ErrCut
			}
			return nil, nil
		})
		c.sleep(25 * time.Second)
		p.end()
		assert.Equal(c, seconds(10, 20), c.fires())
		assert.Equal(c, 3, p.link.Counted()["undo"])
	})
}

func TestAFireWhoseLostClaimCannotBeUndoneRunsOnceTheClaimRanOut(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", schedule.Every(time.Minute), time.Second, schedule.With(mongolock.TTL(5*time.Second))).start()
		lost := false
		p.link.Fail(func(call string) (error, error) {
			switch {
			case call == "undo":
				return jobstest.ErrCut, nil
			case call == "claim" && !lost:
				lost = true
				return nil, jobstest.ErrCut
			}
			return nil, nil
		})
		c.sleep(100 * time.Second)
		p.end()
		require.Equal(c, seconds(60), c.fires())
		at := c.took()[0].at
		assert.GreaterOrEqual(c, at, 65*time.Second)
		assert.LessOrEqual(c, at, 80*time.Second)
	})
}

// While the end of a run cannot be written the job is busy. That costs no fire.
func TestAnEndThatIsWrittenLateCostsNoFire(t *testing.T) {
	for name, opts := range lates {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				p := c.process(1).add("job", schedule.Every(10*time.Second), 9500*time.Millisecond, opts...).start()
				failed := 0
				p.link.Fail(func(call string) (error, error) {
					if call == "end" && failed < 3 {
						failed++
						return jobstest.ErrCut, nil
					}
					return nil, nil
				})
				c.sleep(59 * time.Second)
				p.end()
				assert.Equal(c, seconds(10, 20, 30, 40, 50), c.fires())
			})
		})
	}
}

func TestTheEndOfARunIsWrittenThoughItsReplyIsLost(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", schedule.Every(10*time.Second), time.Second).start()
		lost := false
		p.link.Fail(func(call string) (error, error) {
			if call == "end" && !lost {
				lost = true
				return nil, jobstest.ErrCut
			}
			return nil, nil
		})
		c.sleep(25 * time.Second)
		p.end()
		past := c.state("job").Past
		require.Len(c, past, 2)
		assert.EqualValues(c, schedule.Succeeded, past[0].Outcome)
		assert.EqualValues(c, schedule.Succeeded, past[1].Outcome)
		assert.Equal(c, time.Second, past[1].Ended.Sub(past[1].Began))
	})
}
