//go:build knobs

package hostfile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
)

func TestControlALockOnARemovedFileIsHeldByTwo(t *testing.T) {
	knob.StaleLockKept = true
	defer func() { knob.StaleLockKept = false }()
	waiter, other := lockWhileItsFileIsRemoved(t)
	defer other.Unlock()
	select {
	case err := <-waiter:
		assert.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Error("the lock of the removed file was not taken")
	}
}

func TestControlAHolderWhoseLockFileWasRemovedOverwritesTheNext(t *testing.T) {
	knob.StaleLockKept = true
	defer func() { knob.StaleLockKept = false }()
	content, applied, err := writeAfterTheLockIsRemoved(t)
	assert.NoError(t, err)
	assert.True(t, applied)
	assert.Equal(t, "first", content, "the second process's write was not lost")
}
