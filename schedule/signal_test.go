package schedule_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
)

// seen is what a process that has no job sees of "job".
func seen(c *cluster) schedule.State {
	c.Helper()
	s, err := c.process(9).Job(c.Context(), "job")
	require.NoError(c, err)
	return s
}

func TestAJobThatNoProcessHasIsOverdueSinceItsNextDueTime(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", schedule.Every(time.Hour), time.Minute).start()
		c.until(30 * time.Minute)
		s := seen(c)
		assert.Zero(c, s.Overdue())
		assert.False(c, s.Failing(), "a job that has not run")
		c.until(61*time.Minute + 30*time.Second)
		s = seen(c)
		assert.Zero(c, s.Overdue())
		assert.Equal(c, time.Hour, s.Tried.Sub(c.begin))
		assert.Equal(c, 61*time.Minute, s.Succeeded.Sub(c.begin))
		p.end()
		c.until(2 * time.Hour)
		assert.Zero(c, seen(c).Overdue(), "it is due now")
		c.until(5 * time.Hour)
		s = seen(c)
		assert.Equal(c, 3*time.Hour, s.Overdue())
		assert.False(c, s.Failing())
		require.NoError(c, p.Pause(c.Context(), "job"))
		assert.Zero(c, seen(c).Overdue(), "of a paused job")
		require.NoError(c, p.Resume(c.Context(), "job"))
		assert.Zero(c, seen(c).Overdue(), "what was due before the pause is dropped")
		c.until(6*time.Hour + time.Minute)
		assert.Equal(c, time.Minute, seen(c).Overdue())
	})
}

func TestARunWhoseProcessDiedIsOverdueUntilItIsRepeated(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("job", atThree, time.Hour).start()
		c.until(3*time.Hour + 10*time.Minute)
		assert.Zero(c, seen(c).Overdue(), "of a run that goes on")
		p.link.Cut()
		died := seen(c).Runs[0].ExpireAt
		p.end()
		c.until(13 * time.Hour)
		s := seen(c)
		assert.Equal(c, s.Now.Sub(died), s.Overdue())
		assert.True(c, s.Next.After(s.Now), "the next due time has not come")
		q := c.process(2).add("job", atThree, time.Minute).start()
		c.sleep(30 * time.Second)
		s = seen(c)
		assert.Zero(c, s.Overdue(), "it is being repeated")
		assert.True(c, s.Failing(), "the last run that ended died")
		c.sleep(time.Minute)
		assert.False(c, seen(c).Failing())
		q.end()
	})
}

func TestAJobIsFailingUntilItSucceeds(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p, _ := failing(c, 1, 2, schedule.Retry(1, time.Hour))
		p.start()
		c.until(3*time.Hour + time.Minute)
		s := seen(c)
		assert.True(c, s.Failing())
		assert.Zero(c, s.Overdue(), "the pause before the repetition")
		p.end()
		c.until(6 * time.Hour)
		assert.Equal(c, 2*time.Hour, seen(c).Overdue(), "nobody has repeated it")
		q, _ := failing(c, 2, 2, schedule.Retry(1, time.Hour))
		q.start()
		c.sleep(time.Minute)
		assert.False(c, seen(c).Failing())
		q.end()
	})
}

func TestARunThatWasStoppedIsFailingOnlyIfNoOtherTakesItOver(t *testing.T) {
	for name, opts := range map[string][]schedule.JobOption{"at most once": {schedule.AtMostOnce()}, "repeated": nil} {
		inCluster(t, func(c *cluster) {
			p := c.process(1).add("job", atThree, time.Hour, opts...).start()
			c.until(3*time.Hour + time.Minute)
			p.end()
			q := c.process(2).add("job", atThree, time.Hour, opts...).start()
			c.sleep(time.Minute)
			s := seen(c)
			assert.Equal(c, opts != nil, s.Failing(), name)
			assert.Zero(c, s.Overdue(), name)
			q.end()
		})
	}
}

// A tide is a plan of a type that only the program knows.
type tide struct{ schedule.Plan }

func (tide) String() string { return "at high tide" }

func TestAPlanThatCannotBeReadIsToldAndNotTakenForNone(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).job("job", tide{schedule.Every(time.Hour)}, func(context.Context, schedule.Run) error { return errors.New("ebb") }).start()
		c.until(90 * time.Minute)
		s := seen(c)
		require.ErrorIs(c, s.PlanErr, schedule.ErrPlan)
		assert.Zero(c, s.Next)
		p.end()
		own, err := p.Job(c.Context(), "job")
		require.NoError(c, err)
		require.NoError(c, own.PlanErr)
		assert.Equal(c, 2*time.Hour, own.Next.Sub(c.begin), "a process that has the job knows its plan")
	})
}

// A process that starts, and cannot read a plan of which due times are not decided, fails by name, and keeps nobody else from
// running. Once they are decided it starts.
func TestRunFailsForAPlanThatItCannotRead(t *testing.T) {
	inCluster(t, func(c *cluster) {
		old := c.process(1).add("job", tide{schedule.Every(time.Hour)}, time.Second).start()
		c.until(90 * time.Minute)
		hourly := c.process(2).add("job", schedule.Every(2*time.Hour), time.Second).add("other", schedule.Every(time.Second), 0)
		require.ErrorIs(c, hourly.Run(c.Context()), schedule.ErrPlan)
		assert.Equal(c, seconds(3600), c.fires(), "nothing ran in the process that failed")
		c.until(150 * time.Minute)
		assert.Equal(c, seconds(3600, 7200), c.fires(), "the other process follows the new plan")
		old.end()
		hourly.Remove("other")
		hourly.start()
		c.until(5 * time.Hour)
		hourly.end()
		assert.Equal(c, seconds(3600, 7200, 14400), c.fires())
	})
}

func TestAProcessThatRunsLeavesAPlanThatItCannotReadToOthers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var faulted error
		p := c.process(1, schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Faulted {
				faulted = e.Err
			}
		})).add("job", schedule.Every(time.Hour), time.Second).add("other", schedule.Every(50*time.Minute), time.Second).start()
		c.until(10 * time.Minute)
		q := c.process(2).add("job", tide{schedule.Every(30 * time.Minute)}, time.Second).start()
		c.until(65 * time.Minute)
		require.ErrorIs(c, faulted, schedule.ErrPlan)
		assert.Equal(c, seconds(1200, 1800, 3600), c.fires())
		for _, r := range c.took() {
			assert.Equal(c, r.Job == "job", r.by == 2, "%s ran in process %d", r.Job, r.by)
		}
		p.end()
		q.end()
	})
}
