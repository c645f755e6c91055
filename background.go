package mongolock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/suspend"
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

const (
	watchdogPeriod = time.Second
	sleptAtLeast   = 100 * time.Millisecond // less is a reading that was interrupted
)

// A watchdog notices that the machine was suspended, while leases are held or waited for. The timers of
// a process stand still meanwhile and go on afterwards as if nothing had happened; the
// watchdog then ends the leases that ran out and renews those that are due.
type watchdog struct {
	meter suspend.Meter
	seen  time.Duration // asleep, at the last look; used by one look at a time
	awake bool          // the timer is set. Protected by Client.mu
}

// sleepMeter is the meter of a new client. Where a switch makes the clocks of stores stand
// still, in virtual time, that of the leases goes on as it is: it needs no meter.
func sleepMeter() suspend.Meter {
	if knob.Sleeper() != nil {
		return suspend.Meter{}
	}
	return suspend.New()
}

// measure makes the client's clock count what m measures.
func (c *Client) measure(m suspend.Meter) {
	c.clock, c.watchdog.meter = monotonic.CountingSleep(m), m
}

// watchSleep sets the watchdog's timer, unless it is set or nothing is measured. With
// c.mu held.
func (c *Client) watchSleep() {
	if c.watchdog.awake || !c.watchdog.meter.Measures() {
		return
	}
	c.watchdog.awake = true
	time.AfterFunc(watchdogPeriod, c.lookForSleep)
}

// lookForSleep is the watchdog's look. The next one follows while there are leases or waiters.
func (c *Client) lookForSleep() {
	if !c.enter() {
		return
	}
	defer c.background.Done()
	asleep := c.watchdog.meter.Asleep()
	if asleep-c.watchdog.seen >= sleptAtLeast {
		c.afterSleep()
	}
	c.watchdog.seen = max(c.watchdog.seen, asleep)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchdog.awake = false
	if c.leases != nil || c.waiting > 0 {
		c.watchSleep()
	}
}

// afterSleep ends the leases that ran out while the machine slept, sets the timers of the
// others by the time that has passed, and so renews what is due. What this client waits for
// may have come free meanwhile, and nobody heard of it.
func (c *Client) afterSleep() {
	c.keeper.rearm()
	c.mu.Lock()
	for _, q := range c.queues {
		q.look()
	}
	c.mu.Unlock()
	for _, l := range c.unsettledLeases() {
		l.expire()
	}
}
