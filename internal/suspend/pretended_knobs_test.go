//go:build knobs

package suspend_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/suspend"
	"github.com/mongolock/mongolock/internal/test/knob"
)

func TestASimulatedMachineSleepsInVirtualTime(t *testing.T) {
	before := knob.Sleeper
	defer func() { knob.Sleeper = before }()
	var slept time.Duration
	knob.Sleeper = func() func() time.Duration { return func() time.Duration { return slept } }
	synctest.Test(t, func(t *testing.T) {
		m := suspend.New()
		slept = time.Hour
		assert.Equal(t, time.Hour, m.Asleep())
	})
}
