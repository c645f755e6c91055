package schedule_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
)

// Forget is for a job that no process has any more. A read that was under way when it was removed
// must not bring its document back.
func TestAJobThatIsForgottenDuringAReadIsNotRegisteredAgain(t *testing.T) {
	for name, err := range map[string]error{"that fails": errCut, "that succeeds": nil} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				p := c.process(1).add("job", schedule.Every(time.Hour), time.Second).add("other", schedule.Every(time.Hour), time.Second)
				var removed atomic.Bool
				p.link.fail(func(call string) (before, after error) {
					if call == "read" && !removed.Swap(true) {
						assert.True(c, p.Remove("job"))
						assert.NoError(c, p.Forget(c.Context(), "job"))
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
