package mongolock

import (
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/suspend"
)

const (
	watchdogPeriod = time.Second
	sleptAtLeast   = 100 * time.Millisecond // less is a reading that was interrupted
)

// A watchdog notices that the machine was suspended, while leases are held or waited for. A
// suspended process's timers stand still, and go on afterwards as if nothing had happened. The
// watchdog then ends the leases that ran out and renews those that are due.
type watchdog struct {
	meter suspend.Meter
	seen  time.Duration // time asleep at the last look; used by one look at a time
	awake bool          // the timer is set; protected by Client.mu
}

// measure makes the client's clock count what m measures.
func (c *Client) measure(m suspend.Meter) {
	c.clock, c.watchdog.meter = monotonic.CountingSleep(m), m
}

// watchSleep sets the watchdog's timer, unless it is set or sleep is not measured. Call it with
// c.mu held.
func (c *Client) watchSleep() {
	if c.watchdog.awake || !c.watchdog.meter.Measures() {
		return
	}
	c.watchdog.awake = true
	time.AfterFunc(watchdogPeriod, func() { c.background.Do(c.lookForSleep) })
}

// lookForSleep checks for sleep when the timer fires, and sets it again while there are leases
// or waiters.
func (c *Client) lookForSleep() {
	asleep := c.watchdog.meter.Asleep()
	if asleep-c.watchdog.seen >= sleptAtLeast {
		c.afterSleep()
	}
	c.watchdog.seen = max(c.watchdog.seen, asleep)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchdog.awake = false
	if c.held.first != nil || c.waiting > 0 {
		c.watchSleep()
	}
}

// afterSleep ends the leases that ran out while the machine slept. It sets the timers of the
// others by the time that has passed, which renews those that are due. It also reads the keys
// that are waited for: their wake-ups may have been missed.
func (c *Client) afterSleep() {
	c.keeper.Rearm()
	c.mu.Lock()
	for _, q := range c.queues.All {
		q.look()
	}
	c.mu.Unlock()
	if c.sessions != nil {
		c.sessions.afterSleep()
	}
	for _, h := range c.unsettled() {
		h.expire()
	}
}
