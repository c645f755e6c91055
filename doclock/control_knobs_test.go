//go:build knobs

package doclock

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/knob"
)

// The control: after a clean-up in another session the claim is accepted.
func TestControlACleanUpInAnotherSessionLetsALateClaimIn(t *testing.T) {
	knob.UndoElsewhere = true
	t.Cleanup(func() { knob.UndoElsewhere = false })
	assert.True(t, lateClaim(t), "refused all the same: the session is not what protects")
}
