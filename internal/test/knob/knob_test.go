package knob_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
)

func TestASwitchPicksTheFault(t *testing.T) {
	assert.Equal(t, "faulty", knob.Pick(true, "faulty", "right"))
	assert.Equal(t, "right", knob.Pick(false, "faulty", "right"))
}
