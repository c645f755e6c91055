package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// An ops is an observer that counts operations by package, operation, key and outcome.
type ops struct {
	mu    sync.Mutex // protects count
	count map[string]int
}

func (o *ops) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	return context.WithValue(ctx, observedKey{}, of.Op), func(out mongolock.Outcome) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.count == nil {
			o.count = make(map[string]int)
		}
		o.count[fmt.Sprintf("%s %s %s %s", of.Package, of.Op, of.Key, mongolock.OutcomeOf(out.Err))]++
	}
}

type observedKey struct{}

func (o *ops) of(key string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count[key]
}

func TestAnObserverSeesClaimsRunsAndTheirEnds(t *testing.T) {
	inCluster(t, func(c *cluster) {
		seen, others := &ops{}, &ops{}
		p := c.process(1, schedule.WithObserver(seen))
		p.job("report", schedule.Every(time.Hour), func(ctx context.Context, _ schedule.Run) error {
			assert.Equal(c, mongolock.OpRun, ctx.Value(observedKey{}), "the operation whose context the function gets")
			time.Sleep(time.Minute)
			return errors.New("the disk is full")
		})
		q := c.process(2, schedule.WithObserver(others))
		q.add("report", schedule.Every(time.Hour), time.Minute)
		assert.Zero(c, p.Stats().Held)
		p.start()
		q.start()
		c.until(30*time.Hour + 30*time.Minute) // between two fires
		p.end()
		q.end()
		runs := seen.of("schedule run report failed")
		assert.Positive(c, runs+others.of("schedule run report granted"))
		for _, o := range []*ops{seen, others} {
			won := o.of("schedule acquire report granted")
			assert.Equal(c, won, o.of("schedule hold report released"))
			assert.Equal(c, won, o.of("schedule release report granted"))
			assert.Equal(c, won, o.of("schedule run report failed")+o.of("schedule run report granted"))
		}
		assert.Positive(c, seen.of("schedule acquire report held")+others.of("schedule acquire report held"), "the fires that the other process had")
		assert.Zero(c, seen.of("schedule acquire report failed")+others.of("schedule acquire report failed"))
	})
}

func TestAnObserverSeesFiresThatWillNotRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		seen := &ops{}
		p := c.process(1, schedule.WithObserver(seen), schedule.WithWorkers(1)).
			add("long", schedule.Cron("0 5 * * *"), 150*time.Minute).
			add("hourly", schedule.Cron("1 * * * *"), time.Minute).start()
		c.until(6 * time.Hour)
		assert.Equal(c, 1, p.Stats().Held, "the run under way")
		assert.Equal(c, "schedule", p.Stats().Package)
		c.until(10 * time.Hour)
		p.end()
		assert.Equal(c, 1, seen.of("schedule miss hourly granted"))
	})
}

func TestAnObserverSeesARunThatWasLost(t *testing.T) {
	inCluster(t, func(c *cluster) {
		seen := &ops{}
		p := c.process(1, schedule.WithObserver(seen))
		p.job("report", schedule.Every(time.Hour), func(ctx context.Context, _ schedule.Run) error {
			p.link.Cut()
			<-ctx.Done()
			return nil
		})
		p.start()
		c.until(90 * time.Minute)
		p.end()
		assert.Equal(c, 1, seen.of("schedule run report lost"))
		assert.Equal(c, 1, seen.of("schedule hold report lost"))
	})
}

func TestANilObserverIsRefused(t *testing.T) {
	_, err := schedule.NewWithStore(jobs.NewMemory(), schedule.WithObserver(nil))
	require.ErrorContains(t, err, "schedule: WithObserver(nil): must not be nil")
}
