package mongolock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// spawn runs f in the background. It reports false, and does nothing, if the client is
// closed. Close waits for f.
func (c *Client) spawn(f func()) bool {
	if !c.enter() {
		return false
	}
	go func() {
		defer c.background.Done()
		f()
	}()
	return true
}

// enter counts the caller's goroutine among those that Close waits for. It reports
// false if the client is closed; otherwise the caller must call background.Done.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enterLocked()
}

// enterLocked is enter, with c.mu held.
func (c *Client) enterLocked() bool {
	if c.closed {
		return false
	}
	c.background.Add(1)
	return true
}

// pause sleeps in the background. It reports false if the client is torn down first.
func (c *Client) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.base.Done():
		return false
	}
}

// bound is a context for one store call. It has values' values and ends at deadline, or
// when the client is torn down. The caller's cancellation is not in it: a cancel would
// leave a claim of unknown outcome behind.
func (c *Client) bound(values context.Context, deadline monotonic.Moment) (context.Context, context.CancelFunc) {
	if c.prompt {
		return valued{c.base, values}, func() {} // a timer would take longer than the call
	}
	ctx, cancel := context.WithDeadline(c.base, c.clock.Time(deadline))
	return valued{ctx, values}, cancel
}

// within is bound with a deadline d from now.
func (c *Client) within(values context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return c.bound(values, c.clock.Now().Add(d))
}
