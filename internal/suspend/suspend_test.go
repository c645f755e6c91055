package suspend_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/suspend"
)

func TestAMeterShowsWhatTheMachineHasSleptSinceItWasMade(t *testing.T) {
	slept := time.Hour // before
	m := suspend.From(func() time.Duration { return slept })
	assert.Zero(t, m.Asleep())
	slept += time.Minute
	assert.Equal(t, time.Minute, m.Asleep())
	assert.Zero(t, suspend.From(func() time.Duration { return slept }).Asleep(), "another one begins anew")
}

func TestAMeterIsNeverNegative(t *testing.T) {
	slept := time.Hour
	m := suspend.From(func() time.Duration { return slept })
	slept -= time.Microsecond // the clocks were read a moment apart
	assert.Zero(t, m.Asleep())
}

func TestAMeterWithoutASourceShowsZero(t *testing.T) {
	assert.Zero(t, suspend.Meter{}.Asleep())
	assert.Zero(t, suspend.From(nil).Asleep())
}

func TestTimeThatPassesAwakeIsNotSleep(t *testing.T) {
	m := suspend.New()
	for range 1000 {
		time.Sleep(50 * time.Microsecond)
		assert.Less(t, m.Asleep(), time.Millisecond, "this machine did not sleep")
	}
}

func TestTheSourceOfThisSystemAnswers(t *testing.T) {
	switch runtime.GOOS {
	case "linux", "darwin":
		assert.True(t, suspend.Measured())
	default:
		assert.False(t, suspend.Measured())
	}
}

func TestVirtualTimeHasNoSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := suspend.New()
		time.Sleep(24 * time.Hour)
		assert.Zero(t, m.Asleep())
	})
}

// Two bubbles one after the other, and real time again: the bubble is recognised each time.
func TestABubbleIsRecognised(t *testing.T) {
	assert.False(t, suspend.InBubble())
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			assert.True(t, suspend.InBubble())
			time.Sleep(100 * 365 * 24 * time.Hour)
			assert.True(t, suspend.InBubble())
		})
	}
	assert.False(t, suspend.InBubble())
}

func BenchmarkAsleep(b *testing.B) {
	m := suspend.New()
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
