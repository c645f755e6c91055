package suspend_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/suspend"
)

func TestAWatchdogLooksEverySecondWhileItsHostIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		var busy atomic.Bool
		var looks, slept atomic.Int64
		w := suspend.Watchdog{
			Meter: suspend.From(func() time.Duration { return time.Duration(asleep.Load()) }),
			Run:   func(look func()) bool { looks.Add(1); look(); return true },
			Busy:  busy.Load,
			Slept: func() { slept.Add(1) },
		}
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(time.Minute)
		assert.Zero(t, looks.Load(), "nobody asked")
		busy.Store(true)
		w.Watch()
		w.Watch() // one timer
		pass(10*time.Second + time.Millisecond)
		assert.EqualValues(t, 10, looks.Load())
		assert.Zero(t, slept.Load())
		asleep.Add(int64(50 * time.Millisecond))
		pass(time.Second)
		assert.Zero(t, slept.Load(), "a reading that was interrupted")
		asleep.Add(int64(time.Hour))
		pass(time.Second)
		assert.EqualValues(t, 1, slept.Load())
		busy.Store(false)
		pass(time.Minute)
		assert.EqualValues(t, 13, looks.Load(), "once more, and no more")
		busy.Store(true)
		w.Watch()
		pass(time.Second)
		assert.EqualValues(t, 14, looks.Load())
		busy.Store(false)
		pass(time.Second)
	})
}

func TestAWatchdogWithoutAMeterNeverLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := suspend.Watchdog{Run: func(func()) bool { t.Error("a look"); return false }}
		w.Watch()
		time.Sleep(time.Minute)
	})
}
