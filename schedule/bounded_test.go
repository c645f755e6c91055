package schedule_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
)

// A hung store does not answer the next call of one kind, until the call's context ends.
type hung struct {
	jobstest.Store
	call atomic.Pointer[string]
}

func newHung(to jobs.Store) *hung {
	h := &hung{}
	h.Store = jobstest.Store{To: to, Through: func(ctx context.Context, c jobstest.Call, send func() error) error {
		next := h.call.Load()
		if next == nil || *next != c.Op || !h.call.CompareAndSwap(next, nil) {
			return send()
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	return h
}

// A server may answer hello and still not answer one command. With one worker, any call that waits for
// that holds everything up.
func TestACallThatIsNotAnsweredHoldsNothingUpForLong(t *testing.T) {
	hangs := func(s *hung, call string) { s.call.Store(&call) }
	at := func(c *cluster, due time.Duration) { assert.Contains(c, c.fires(), due) }
	setUp := func(c *cluster) (*hung, *process) {
		store := newHung(c.store)
		p := c.process(1, schedule.WithWorkers(1))
		p.link.To = store
		return store, p.add("job", schedule.Every(time.Minute), time.Second, schedule.With(mongolock.TTL(5*time.Second)))
	}
	for _, call := range []string{"read", "register"} {
		t.Run("the first "+call, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				store, p := setUp(c)
				hangs(store, call)
				p.start()
				c.until(61 * time.Second)
				p.end()
				at(c, time.Minute)
			})
		})
	}
	t.Run("a read of a new job", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			store, p := setUp(c)
			p.start()
			c.until(10 * time.Second)
			hangs(store, "read")
			p.add("new", schedule.Every(time.Hour), time.Second)
			c.until(61 * time.Second)
			p.end()
			at(c, time.Minute)
		})
	})
	t.Run("a read after a lost claim", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			store, p := setUp(c)
			c.process(2).add("job", schedule.Every(time.Minute), time.Second).start() // claims first
			synctest.Wait()
			p.link.Delay(time.Millisecond)
			p.start()
			c.until(61 * time.Second)
			hangs(store, "read")
			c.until(100 * time.Second)
			p.add("own", schedule.Every(time.Minute), time.Second)
			c.until(3*time.Minute + time.Second)
			assert.Nil(c, store.call.Load(), "it was read")
			p.end()
			var own []time.Duration
			for _, r := range c.took() {
				if r.Job == "own" {
					own = append(own, r.at.Truncate(time.Second))
				}
			}
			assert.Equal(c, seconds(120, 180), own)
		})
	})
	t.Run("a poll", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			store, p := setUp(c)
			p.add("seldom", schedule.Every(24*time.Hour), time.Second).start()
			c.until(20 * time.Second)
			hangs(store, "changed")
			c.until(50 * time.Second)
			require.NoError(c, c.process(2).RunNow(c.Context(), "seldom"))
			c.until(2 * time.Minute)
			p.end()
			at(c, 50*time.Second)
		})
	})
	t.Run("the end of a run that died too often", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			store, p := setUp(c)
			c.third(time.Second, time.Minute)
			c.until(10 * time.Second)
			hangs(store, "end")
			p.start()
			c.until(2 * time.Minute)
			assert.Nil(c, store.call.Load(), "it was given up")
			p.end()
			at(c, time.Minute)
		})
	})
}

// Forget is for a job that no process has any more. A read that was under way when it was removed
// must not bring its document back.
func TestAJobThatIsForgottenDuringAReadIsNotRegisteredAgain(t *testing.T) {
	for name, err := range map[string]error{"that fails": jobstest.ErrCut, "that succeeds": nil} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				p := c.process(1).add("job", schedule.Every(time.Hour), time.Second).add("other", schedule.Every(time.Hour), time.Second)
				var removed atomic.Bool
				p.link.Fail(func(call string) (before, after error) {
					if call == "read" && !removed.Swap(true) {
						assert.True(c, p.Remove("job"))
						assert.ErrorIs(c, p.Forget(c.Context(), "job"), schedule.ErrUnknown)
						return err, nil
					}
					return nil, nil
				})
				p.start()
				c.until(90 * time.Minute)
				p.end()
				assert.False(c, c.state("job").Known)
				assert.Equal(c, []time.Duration{time.Hour}, c.fires(), "the other job")
			})
		})
	}
}

// A watched context counts how often it is used.
type watched struct {
	context.Context
	uses *atomic.Int64
}

func (w watched) Value(key any) any { w.uses.Add(1); return w.Context.Value(key) }

func TestTheGraceEndsWithRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1, schedule.WithGrace(time.Hour)).add("job", schedule.Every(time.Minute), time.Second)
		ctx, stop := context.WithCancel(c.Context())
		var uses atomic.Int64
		go func() { p.over <- p.Run(watched{ctx, &uses}) }()
		c.sleep(90 * time.Second)
		stop()
		require.NoError(c, <-p.over)
		before := uses.Load()
		c.sleep(2 * time.Hour)
		assert.Equal(c, before, uses.Load(), "uses of the context of a Run that has returned")
	})
}
