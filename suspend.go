package mongolock

import (
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/suspend"
)

const (
	watchdogPeriod = time.Second
	sleptAtLeast   = 100 * time.Millisecond // less is a reading that was interrupted
)

// A watchdog notices that the machine was suspended, while leases are held. The timers of
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

// lookForSleep is the watchdog's look. The next one follows while there are leases.
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
	if c.leases != nil {
		c.watchSleep()
	}
}

// afterSleep ends the leases that ran out while the machine slept, sets the timers of the
// others by the time that has passed, and so renews what is due.
func (c *Client) afterSleep() {
	c.keeper.rearm()
	for _, l := range c.unsettledLeases() {
		l.expire()
	}
}
