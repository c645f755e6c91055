package suspend

import (
	"sync/atomic"
	"time"
)

// Period is how often a Watchdog looks.
const Period = time.Second

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
		time.AfterFunc(Period, func() { w.Run(w.look) })
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
