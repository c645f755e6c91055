package leader

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Healthy makes a check for a liveness probe. The check fails if the work of a candidate was
// told to stop longer than tolerance ago and has not returned. Such a process can neither lead
// nor stand again, and only a restart helps. A process that leads, or waits to lead, is
// healthy.
//
// The work is told to stop by its context: when the term is lost or resigned, or the
// context of Run ends. Let tolerance be the longest time that it needs then.
//
// The check is a func(*http.Request) error, which the probes of Kubernetes controllers
// take as it is. It does not look at the request, which may be nil.
func Healthy(tolerance time.Duration, candidates ...*Candidate) func(*http.Request) error {
	return func(*http.Request) error {
		for _, c := range candidates {
			if late := c.overdue(); late > tolerance {
				return fmt.Errorf("leader: %q: the work was told to stop %v ago and goes on", c.key, late.Round(time.Millisecond))
			}
		}
		return nil
	}
}

// watchHealth records when ctx, the context of the work, ends, until the work has returned.
func (c *Candidate) watchHealth(ctx context.Context) (returned func()) {
	over := false // protected by c.mu
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !over {
			c.told = time.Now()
		}
	})
	return func() {
		stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		over, c.told = true, time.Time{}
	}
}

// overdue returns how long ago work that still runs was told to stop; zero if it was not.
func (c *Candidate) overdue() time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	lease, told := c.lease, c.told
	c.mu.Unlock()
	switch {
	case !told.IsZero():
		return time.Since(told)
	case lease != nil:
		_ = lease.Err() // this ends a lease that ran out while the process was paused; the next check sees it
	}
	return 0
}
