//go:build knobs

package leader_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
)

// The control: where nobody looks before it leads, those in front lead first.
func TestControlACandidateThatDoesNotPassTheKeyOnLeadsBeforeAHigherOne(t *testing.T) {
	knob.OutrankedLeads = true
	t.Cleanup(func() { knob.OutrankedLeads = false })
	assert.NotEqual(t, "high", waitTogether(t), "the look before a term is not what lets the highest lead first")
}

// The control: where room is made again and again, nobody leads until the lease of the dead one has run out.
func TestControlACandidateThatDiedKeepsOthersFromLeadingIfRoomIsMadeForItAgain(t *testing.T) {
	knob.RoomMadeAgain = true
	t.Cleanup(func() { knob.RoomMadeAgain = false })
	_, after := leadsOn(t, 3)
	assert.Greater(t, after, 20*time.Second, "that room is made once is not what lets others lead soon")
}
