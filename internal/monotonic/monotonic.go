// Package monotonic tells the time by this machine's monotonic clock alone. A
// [Moment] holds no wall clock that could decide anything, costs half of what
// time.Now does to read, and takes a third of the room of a time.Time.
package monotonic

import (
	"math"
	"time"
)

// A Moment is a point in time: the nanoseconds since the origin of its [Clock].
// Moments of two clocks cannot be compared. Zero is before all that a Clock yields,
// and stands for none.
type Moment int64

// Never is later than all others.
const Never Moment = math.MaxInt64

// Add is the moment d later, at most [Never].
func (m Moment) Add(d time.Duration) Moment {
	if sum := m + Moment(d); d < 0 || sum >= m {
		return sum
	}
	return Never
}

// Sub is the time from earlier to m.
func (m Moment) Sub(earlier Moment) time.Duration { return time.Duration(m - earlier) }

// A Clock counts the time since it was made. Make one with [New] or [CountingSleep]; it
// is safe for concurrent use.
type Clock struct {
	origin time.Time
	sleep  Meter

	counting func() time.Duration // a clock that counts sleep: Now is what it shows less began
	began    time.Duration
}

// New makes a clock that begins now. It stands still while the machine is suspended, where
// the monotonic clock does.
func New() Clock { return Clock{origin: time.Now().Add(-1)} } // no moment is zero

// CountingSleep makes a clock that begins now and counts the time for which the machine is
// suspended. A reading takes a system call.
func CountingSleep(m Meter) Clock {
	c := New()
	c.sleep = m
	if c.counting = m.counting; c.counting != nil {
		c.began = c.counting()
		c.began -= m.Asleep() + time.Since(c.origin)
	}
	return c
}

// Now is the present moment.
func (c Clock) Now() Moment {
	if c.counting != nil {
		return Moment(c.counting() - c.began)
	}
	asleep := c.sleep.Asleep() // first: see package monotonic
	return Moment(asleep + time.Since(c.origin))
}

// Until is the time from now to m, negative if m has passed.
func (c Clock) Until(m Moment) time.Duration { return m.Sub(c.Now()) }

// Since is the time from m to now.
func (c Clock) Since(m Moment) time.Duration { return c.Now().Sub(m) }

// After is time.After for m: it never fires if m is zero.
func (c Clock) After(m Moment) <-chan time.Time {
	if m == 0 {
		return nil
	}
	return time.After(c.Until(m))
}

// Time is m as a time.Time, for code that does not know this clock: as far from time.Now as
// m is from now.
func (c Clock) Time(m Moment) time.Time { return c.origin.Add(time.Duration(m) - c.sleep.Asleep()) }
