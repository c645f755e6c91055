package knob_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/knob"
)

func TestOnlyABuildWithSwitchesPicksTheFault(t *testing.T) {
	assert.Equal(t, map[bool]string{true: "faulty", false: "right"}[knob.On], knob.Pick(true, "faulty", "right"))
	assert.Equal(t, "right", knob.Pick(false, "faulty", "right"))
}
