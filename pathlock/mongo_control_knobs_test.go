//go:build knobs

package pathlock

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
)

// The control: what a late refresh wrote is removed though it has changed meanwhile.
func TestControlTheUndoOfALateRefreshThatNamesNoRevisionTakesALockAway(t *testing.T) {
	knob.PathDropWithoutRev = true
	t.Cleanup(func() { knob.PathDropWithoutRev = false })
	f, tree, _ := aRefreshOfARevivedLock(t)
	_, err := tree.Lock(f.ctx(), exclusively("/a"))
	assert.NoError(t, err, "refused all the same: the revision is not what protects")
}
