package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
)

// failing runs a job at 3:00 in a process whose attempts fail but for one, and tells what it did.
func failing(c *cluster, nr, good int, opts ...schedule.JobOption) (p *process, told *[]string) {
	told = new([]string)
	p = c.process(nr, schedule.WithEvents(func(e schedule.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case e.Kind == schedule.Dropped:
			*told = append(*told, fmt.Sprintf("dropped: %s", e.Why))
		case e.Kind == schedule.Ended && e.Again.IsZero():
			*told = append(*told, fmt.Sprintf("%s after %d", e.Run.Outcome, e.Run.Attempt))
		case e.Kind == schedule.Ended:
			*told = append(*told, fmt.Sprintf("%s %d, again in %v", e.Run.Outcome, e.Run.Attempt, e.Again.Sub(e.At).Round(time.Second)))
		}
	}))
	p.job("job", atThree, func(_ context.Context, r schedule.Run) error {
		if r.Attempt != good {
			return errors.New("no paper")
		}
		return nil
	}, opts...)
	return p, told
}

func TestARunThatFailsIsRepeatedAfterPausesThatDouble(t *testing.T) {
	for good, want := range map[int][]string{
		3: {"failed 1, again in 1m0s", "failed 2, again in 2m0s", "succeeded after 3"},
		9: {"failed 1, again in 1m0s", "failed 2, again in 2m0s", "failed after 3"},
	} {
		inCluster(t, func(c *cluster) {
			p, told := failing(c, 1, good, schedule.Retry(2, time.Minute))
			p.start()
			c.until(20 * time.Hour)
			p.end()
			assert.Equal(c, want, *told)
			var at []time.Duration
			last := int64(0)
			for _, r := range c.took() {
				at = append(at, r.at)
				assert.Equal(c, 3*time.Hour, r.Due.Sub(c.begin))
				assert.Greater(c, r.Token(), last)
				last = r.Token()
			}
			assert.Equal(c, []time.Duration{3 * time.Hour, 3*time.Hour + time.Minute, 3*time.Hour + 3*time.Minute}, at)
			assert.Len(c, c.state("job").Past, 3, "each attempt is in the past")
		})
	}
}

func TestARunThatFailedIsRepeatedByAnotherProcess(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p, _ := failing(c, 1, 2, schedule.Retry(2, time.Minute))
		p.start()
		c.until(3*time.Hour + time.Second)
		q, told := failing(c, 2, 2, schedule.Retry(2, time.Minute))
		q.start()
		p.end()
		state, err := q.Job(c.Context(), "job")
		require.NoError(c, err)
		require.Len(c, state.Runs, 1)
		assert.Equal(c, schedule.Failed, state.Runs[0].Outcome)
		assert.Equal(c, 3*time.Hour+time.Minute, state.Runs[0].Again.Sub(c.begin))
		c.until(20 * time.Hour)
		q.end()
		assert.Equal(c, []string{"succeeded after 2"}, *told)
		assert.Equal(c, 3*time.Hour+time.Minute, c.took()[1].at)
	})
}

func TestMaxLateBoundsRetries(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p, told := failing(c, 1, 9, schedule.Retry(9, time.Minute), schedule.MaxLate(4*time.Minute))
		p.start()
		c.until(20 * time.Hour)
		p.end()
		assert.Equal(c, []string{"failed 1, again in 1m0s", "failed 2, again in 2m0s", "failed after 3"}, *told)
	})
}

// No process is up when a repetition is due.
func TestARepetitionThatIsTooLateIsToldAsDropped(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opts := []schedule.JobOption{schedule.Retry(9, time.Minute), schedule.MaxLate(4 * time.Minute)}
		p, told := failing(c, 1, 9, opts...)
		p.start()
		c.until(3*time.Hour + time.Second)
		p.end()
		c.until(4 * time.Hour)
		q, later := failing(c, 2, 9, opts...)
		q.start()
		c.until(20 * time.Hour)
		q.end()
		assert.Equal(c, []string{"failed 1, again in 1m0s"}, *told)
		assert.Equal(c, []string{"dropped: they were later than MaxLate allows"}, *later)
		past := c.state("job").Past
		require.Len(c, past, 2)
		assert.Equal(c, "too late", past[0].Outcome)
	})
}

// A due time that comes while a repetition is awaited waits, as during a run.
func TestNoOtherDueTimeRunsBeforeARepetition(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).job("job", schedule.Every(time.Hour), func(_ context.Context, r schedule.Run) error {
			if r.Due.Sub(c.begin) == time.Hour && r.Attempt < 3 {
				return errors.New("no paper")
			}
			return nil
		}, schedule.Retry(5, 40*time.Minute))
		p.start()
		c.until(6*time.Hour + time.Minute)
		p.end()
		var got []string
		for _, r := range c.took() {
			got = append(got, fmt.Sprint(r.Due.Sub(c.begin), " at ", r.at))
		}
		assert.Equal(c, []string{"1h0m0s at 1h0m0s", "1h0m0s at 1h40m0s", "1h0m0s at 3h0m0s", "3h0m0s at 3h0m0s", "4h0m0s at 4h0m0s", "5h0m0s at 5h0m0s", "6h0m0s at 6h0m0s"}, got)
	})
}

// What became of the due time is not known, nobody repeats it, and that is told once, by whoever finds it.
func TestARunThatDiedUnderAtMostOnceIsToldOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opts := []schedule.JobOption{schedule.AtMostOnce(), schedule.With(mongolock.TTL(30 * time.Second))}
		dead := c.process(1).job("job", atThree, func(ctx context.Context, _ schedule.Run) error { <-ctx.Done(); return nil }, opts...).start()
		c.until(3*time.Hour - time.Minute)
		q, told := failing(c, 2, 1, opts...)
		r, others := failing(c, 3, 1, opts...)
		for _, p := range []*process{q, r} {
			p.link.Delay(time.Millisecond)
			p.start()
		}
		c.until(3*time.Hour + time.Minute)
		dead.link.Cut()
		c.until(20 * time.Hour)
		q.end()
		r.end()
		dead.stop()
		<-dead.over
		assert.Equal(c, []string{"dropped: its run did not come to an end, and AtMostOnce allows no other"}, append(*told, *others...))
		assert.Len(c, c.took(), 1)
		past := c.state("job").Past
		require.Len(c, past, 1)
		assert.Equal(c, "died", past[0].Outcome)
		assert.Equal(c, "process-1", past[0].Owner)
	})
}
