//go:build knobs

package keep_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
)

func TestControlTwoUsesAtATimeAreNoticed(t *testing.T) {
	inBubble(t, func(f *fixture) {
		knob.UsedTogether = true
		defer func() { knob.UsedTogether = false }()
		assert.Contains(t, usesAtATime(f), "uses at a time")
	})
}
