package monotonic_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/monotonic"
)

func TestAMeterShowsWhatTheMachineHasSleptSinceItWasMade(t *testing.T) {
	slept := time.Hour // before
	m := monotonic.MeterFrom(func() time.Duration { return slept })
	assert.Zero(t, m.Asleep())
	slept += time.Minute
	assert.Equal(t, time.Minute, m.Asleep())
	assert.Zero(t, monotonic.MeterFrom(func() time.Duration { return slept }).Asleep(), "another one begins anew")
}

func TestAMeterIsNeverNegative(t *testing.T) {
	slept := time.Hour
	m := monotonic.MeterFrom(func() time.Duration { return slept })
	slept -= time.Microsecond // the clocks were read a moment apart
	assert.Zero(t, m.Asleep())
}

func TestAMeterWithoutASourceShowsZero(t *testing.T) {
	assert.Zero(t, monotonic.Meter{}.Asleep())
	assert.Zero(t, monotonic.MeterFrom(nil).Asleep())
}

func TestTimeThatPassesAwakeIsNotSleep(t *testing.T) {
	m := monotonic.NewMeter()
	for range 1000 {
		time.Sleep(50 * time.Microsecond)
		assert.Less(t, m.Asleep(), time.Millisecond, "this machine did not sleep")
	}
}

func TestTheSourceOfThisSystemAnswers(t *testing.T) {
	switch runtime.GOOS {
	case "linux", "darwin":
		assert.True(t, monotonic.Measured())
	default:
		assert.False(t, monotonic.Measured())
	}
}

func TestVirtualTimeHasNoSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := monotonic.NewMeter()
		time.Sleep(24 * time.Hour)
		assert.Zero(t, m.Asleep())
	})
}

// Two bubbles one after the other, and real time again: the bubble is recognised each time.
func TestABubbleIsRecognised(t *testing.T) {
	assert.False(t, monotonic.InBubble())
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			assert.True(t, monotonic.InBubble())
			time.Sleep(100 * 365 * 24 * time.Hour)
			assert.True(t, monotonic.InBubble())
		})
	}
	assert.False(t, monotonic.InBubble())
}

func TestAWatchdogLooksEverySecondWhileItsHostIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		var busy atomic.Bool
		var looks, slept atomic.Int64
		w := monotonic.Watchdog{
			Meter: monotonic.MeterFrom(func() time.Duration { return time.Duration(asleep.Load()) }),
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
		w := monotonic.Watchdog{Run: func(func()) bool { t.Error("a look"); return false }}
		w.Watch()
		time.Sleep(time.Minute)
	})
}

func BenchmarkAsleep(b *testing.B) {
	m := monotonic.NewMeter()
	for b.Loop() {
		_ = m.Asleep()
	}
}

// BenchmarkSince is what the reading costs beside.
func BenchmarkSince(b *testing.B) {
	began := time.Now()
	for b.Loop() {
		_ = time.Since(began)
	}
}
