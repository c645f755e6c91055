package pace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAnIdleMachineHasItsTimeAndABusyOneMore(t *testing.T) {
	for late, want := range map[time.Duration]float64{
		0:                      1,
		10 * time.Millisecond:  1.5,
		60 * time.Millisecond:  4,
		500 * time.Millisecond: slowest,
	} {
		assert.InDelta(t, want, factorFor(late), 0.001, "naps that were late by %v", late)
	}
}

func TestProportionsAreKept(t *testing.T) {
	assert.InDelta(t, 3, float64(Of(3*time.Second))/float64(Of(time.Second)), 0.001)
	assert.GreaterOrEqual(t, Of(time.Second), time.Second)
}
