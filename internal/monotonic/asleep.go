package monotonic

import (
	"sync/atomic"
	"time"
)

// A Meter measures how long the machine has slept since the Meter was made. The zero Meter
// shows zero. It is safe for concurrent use.
//
// Go's monotonic clock stands still while a Linux machine or a Mac is suspended, and the
// timers of a process with it. The database's clock goes on. So a lease that is counted on
// the monotonic clock alone is trusted after its TTL has ended.
//
// Read the Meter first and the monotonic clock after it. The sum is then never behind a clock
// that counts sleep, as it was when the Meter was read: what was true then is at most late.
//
// Not measured: a virtual machine that is paused and hides it from its guest, a process that
// is stopped (its monotonic clock goes on), and systems other than those below.
//
//	Linux    CLOCK_BOOTTIME less CLOCK_MONOTONIC
//	macOS    CLOCK_MONOTONIC_RAW less CLOCK_UPTIME_RAW
//	Windows  zero: Go's monotonic clock is the interrupt time, which counts sleep
//
// In a bubble of testing/synctest a Meter shows zero, as virtual time has no sleep.
type Meter struct {
	read func() time.Duration // since any moment; nil: nothing is measured
	base time.Duration

	// counting is the system's clock that counts sleep, since any moment; nil if the system has none, or
	// a test's source stands in its place. One reading of it costs half of what Asleep and the
	// monotonic clock cost together.
	counting func() time.Duration
}

// NewMeter makes a Meter that shows zero now.
func NewMeter() Meter {
	if InBubble() {
		return Meter{}
	}
	counting := total()
	if counting == nil {
		return Meter{}
	}
	m := MeterFrom(lessAwake(counting))
	m.counting = counting
	return m
}

// MeterFrom makes a Meter of a source that a test controls. A nil source measures nothing.
func MeterFrom(read func() time.Duration) Meter {
	if read == nil {
		return Meter{}
	}
	return Meter{read: read, base: read()}
}

// Measures reports whether the Meter can show anything but zero.
func (m Meter) Measures() bool { return m.read != nil }

// Asleep returns how long the machine has slept since the Meter was made. The value is exact
// but for the time that passes between the readings of two clocks, by which it may be lower.
func (m Meter) Asleep() time.Duration {
	if m.read == nil {
		return 0
	}
	return max(m.read()-m.base, 0)
}

// InBubble reports whether the caller is in a bubble of testing/synctest. There time.Now has no monotonic reading
// that Round could strip.
func InBubble() bool {
	now := time.Now()
	return now == now.Round(0) //nolint:staticcheck,revive // Equal does not see the monotonic reading
}

// origin is any moment: only differences to it are used.
var origin = time.Now()

// lessAwake returns the difference of two clocks: one that counts sleep, and Go's monotonic
// clock, which does not. The latter is read last, so a pause in between makes the difference
// smaller, not larger.
func lessAwake(counting func() time.Duration) func() time.Duration {
	return func() time.Duration {
		since := counting()
		return since - time.Since(origin)
	}
}

// answering is the clock that read reads; nil if this system refuses it.
func answering(read func() (time.Duration, error)) func() time.Duration {
	if _, err := read(); err != nil {
		return nil
	}
	return func() time.Duration {
		t, _ := read() // it has answered before
		return t
	}
}

// WatchPeriod is how often a Watchdog looks.
const WatchPeriod = time.Second

const sleptAtLeast = 100 * time.Millisecond // less is a reading that was interrupted

// A Watchdog notices that the machine was suspended, while its host is busy. A suspended process's
// timers stand still, and go on afterwards as if nothing had happened.
type Watchdog struct {
	Meter Meter
	Run   func(look func()) bool // runs a look, unless the host is closed
	Busy  func() bool            // the next look is needed
	Slept func()

	seen  time.Duration // time asleep at the last look; used by one look at a time
	awake atomic.Bool   // the timer is set
}

// Watch sets the timer, unless it is set or sleep is not measured.
func (w *Watchdog) Watch() {
	if !w.awake.Load() && w.Meter.Measures() && !w.awake.Swap(true) {
		time.AfterFunc(WatchPeriod, func() { w.Run(w.look) })
	}
}

// look checks for sleep when the timer fires, and sets it again while it is needed.
func (w *Watchdog) look() {
	asleep := w.Meter.Asleep()
	if asleep-w.seen >= sleptAtLeast {
		w.Slept()
	}
	w.seen = max(w.seen, asleep)
	w.awake.Store(false)
	if w.Busy() {
		w.Watch()
	}
}
