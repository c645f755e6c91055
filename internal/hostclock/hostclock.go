// Package hostclock tells the time by a clock that all processes of a host share and that nothing
// can set.
//
// A wall clock is set by people and time daemons. A date that one process wrote by it is then
// judged too early or too late by the next. The clocks here count from the start of the host,
// with the time for which it was suspended. A process can tell by [Clock.Boot] whether a
// reading was made since the same start.
//
//	Linux    CLOCK_BOOTTIME as the initial time namespace has it; boot_id
//	macOS    CLOCK_MONOTONIC_RAW; kern.bootsessionuuid
//	others   the wall clock, for want of a better one
//
// In a bubble of testing/synctest the clock is the virtual one.
package hostclock

import (
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// A Clock counts the time since a host was started. It is safe for concurrent use.
type Clock struct {
	boot string
	read func() time.Duration
}

// New returns the clock of this host.
func New() (Clock, error) {
	if monotonic.InBubble() {
		return byWall("virtual"), nil
	}
	return system()
}

// Of makes a Clock of a source that a test controls.
func Of(boot string, read func() time.Duration) Clock { return Clock{boot, read} }

// Boot names the start of the host from which the clock counts. Readings of clocks with different
// names cannot be compared.
func (c Clock) Boot() string { return c.boot }

// Now is the time since that start.
func (c Clock) Now() time.Duration { return c.read() }

// byWall is the wall clock as a Clock.
func byWall(boot string) Clock {
	return Clock{boot, func() time.Duration { return time.Duration(time.Now().UnixNano()) }}
}
