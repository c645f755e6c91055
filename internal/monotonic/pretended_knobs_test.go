//go:build knobs

package monotonic_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/test/knob"
)

func TestASimulatedMachineSleepsInVirtualTime(t *testing.T) {
	before := knob.Sleeper
	defer func() { knob.Sleeper = before }()
	var slept time.Duration
	knob.Sleeper = func() func() time.Duration { return func() time.Duration { return slept } }
	synctest.Test(t, func(t *testing.T) {
		m := monotonic.NewMeter()
		slept = time.Hour
		assert.Equal(t, time.Hour, m.Asleep())
	})
}
