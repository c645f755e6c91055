package mongolock

import (
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/suspend"
	"github.com/mongolock/mongolock/internal/tasks"
)

const (
	watchdogPeriod = time.Second
	sleptAtLeast   = 100 * time.Millisecond // less is a reading that was interrupted
)

// A watchdog notices that the machine was suspended, while leases are held or waited for. A
// suspended process's timers stand still, and go on afterwards as if nothing had happened.
type watchdog struct {
	meter suspend.Meter
	tasks *tasks.Group
	busy  func() bool // there are leases or waiters
	slept func()
	seen  time.Duration // time asleep at the last look; used by one look at a time
	awake atomic.Bool   // the timer is set
}

// watch sets the timer, unless it is set or sleep is not measured.
func (w *watchdog) watch() {
	if !w.awake.Load() && w.meter.Measures() && !w.awake.Swap(true) {
		time.AfterFunc(watchdogPeriod, func() { w.tasks.Do(w.look) })
	}
}

// look checks for sleep when the timer fires, and sets it again while it is needed.
func (w *watchdog) look() {
	asleep := w.meter.Asleep()
	if asleep-w.seen >= sleptAtLeast {
		w.slept()
	}
	w.seen = max(w.seen, asleep)
	w.awake.Store(false)
	if w.busy() {
		w.watch()
	}
}

// measure makes the client's clock count what m measures.
func (c *Client) measure(m suspend.Meter) {
	c.clock, c.queues.watchdog.meter = monotonic.CountingSleep(m), m
}

// afterSleep ends the leases that ran out while the machine slept. It sets the timers of the
// others by the time that has passed, which renews those that are due. It also reads the keys
// that are waited for: their wake-ups may have been missed.
func (c *Client) afterSleep() {
	c.keeper.Rearm()
	c.queues.askAll()
	if c.sessions != nil {
		c.sessions.afterSleep()
	}
	for _, h := range c.queues.unsettled() {
		h.expire()
	}
}
