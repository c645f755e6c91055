//go:build knobs

package doclock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
)

// The control: after a clean-up in another session the claim is accepted.
func TestControlACleanUpInAnotherSessionLetsALateClaimIn(t *testing.T) {
	knob.UndoElsewhere = true
	t.Cleanup(func() { knob.UndoElsewhere = false })
	assert.True(t, lateClaim(t), "refused all the same: the session is not what protects")
}

// The control: a holder is judged by the clock of another election than its own.
func TestControlTheClockOfAnotherElectionEndsALiveHolder(t *testing.T) {
	knob.EpochOfReader = true
	t.Cleanup(func() { knob.EpochOfReader = false })
	for name, way := range ways {
		inVirtualTime(t, func(t *testing.T, s *replicaSet, _ dead, locks *Locks[order]) {
			s.Elect(30 * time.Second)
			assert.NoError(t, way(t.Context(), locks), "%s: held all the same: the epoch is not what protects", name)
		})
	}
}

// The control: the late copy brings the lock back that was rolled back, and the save finds it.
func TestControlALateCopyOfAClaimThatTheDriverRepeatedLosesAnUpdate(t *testing.T) {
	knob.UpdateRepeated = true
	t.Cleanup(func() { knob.UpdateRepeated = false })
	seen, total := rounds(t)
	assert.Equal(t, []int{41}, seen, "the first round saved nothing: that the claim goes out once is not what protects")
	assert.EqualValues(t, 42, total)
}

func TestControlTheStormFindsAClockOfAnotherElection(t *testing.T) {
	knob.EpochOfReader = true
	t.Cleanup(func() { knob.EpochOfReader = false })
	_, both := storms(t, 20)
	assert.NotZero(t, both)
}
