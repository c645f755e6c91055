package monotonic_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/monotonic"
)

func TestAClockCountsTheTimeThatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := monotonic.New()
		before := c.Now()
		assert.Positive(t, before, "zero stands for no moment")
		time.Sleep(time.Hour)
		assert.Equal(t, time.Hour, c.Now().Sub(before))
		assert.Equal(t, time.Hour, c.Since(before))
		assert.Equal(t, -time.Hour, c.Until(before))
		assert.Equal(t, time.Minute, c.Until(c.Now().Add(time.Minute)))
	})
}

func TestAMomentAsATimeIsThatOfTheClocksProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Minute)
		c := monotonic.New()
		time.Sleep(time.Minute)
		assert.Zero(t, time.Until(c.Time(c.Now())))
		assert.Equal(t, time.Second, time.Until(c.Time(c.Now().Add(time.Second))))
	})
}

// A clock that was set while the process ran changes nothing: only the monotonic
// reading counts.
func TestTheWallClockPlaysNoPart(t *testing.T) {
	c := monotonic.New()
	m := c.Now()
	assert.Contains(t, c.Time(m).String(), "m=", "a time without a monotonic reading is one of the wall clock")
}

func TestNothingIsLaterThanNever(t *testing.T) {
	const m = monotonic.Moment(time.Hour)
	for d, want := range map[time.Duration]monotonic.Moment{
		0:                                      m,
		1:                                      m + 1,
		-time.Hour:                             0,
		-2 * time.Hour:                         -m,
		1<<63 - 1:                              monotonic.Never,
		time.Duration(monotonic.Never - m):     monotonic.Never,
		time.Duration(monotonic.Never - m - 1): monotonic.Never - 1,
	} {
		assert.Equal(t, want, m.Add(d), "%v later", d)
	}
	assert.Equal(t, monotonic.Never, monotonic.Never.Add(time.Nanosecond))
}

func TestAClockThatCountsSleepGoesOnInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept time.Duration
		c := monotonic.CountingSleep(monotonic.MeterFrom(func() time.Duration { return slept }))
		before := c.Now()
		slept = time.Hour
		assert.Equal(t, time.Hour, c.Since(before))
		assert.Equal(t, time.Minute, time.Until(c.Time(c.Now().Add(time.Minute))), "as far from time.Now as from now")
	})
}

// BenchmarkNow is what a reading costs: with the time asleep, and without.
func BenchmarkNow(b *testing.B) {
	for name, c := range map[string]monotonic.Clock{"counting sleep": monotonic.CountingSleep(monotonic.NewMeter()), "plain": monotonic.New()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_ = c.Now()
			}
		})
	}
}
