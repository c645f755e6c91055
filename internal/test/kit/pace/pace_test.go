package pace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAnIdleMachineHasItsTimeAndABusyOneMore(t *testing.T) {
	for _, c := range []struct {
		computes float64
		late     time.Duration
		want     float64
	}{
		{1, 0, 1},
		{1, 10 * time.Millisecond, 1.5},
		{0.9, 60 * time.Millisecond, 4},
		{0.25, 10 * time.Millisecond, 4},
		{1, 500 * time.Millisecond, slowest},
		{0, 0, slowest},
	} {
		assert.InDelta(t, c.want, factorFor(c.computes, c.late), 0.001, "%+v", c)
	}
}

func TestProportionsAreKept(t *testing.T) {
	assert.InDelta(t, 3, float64(Of(3*time.Second))/float64(Of(time.Second)), 0.001)
	assert.GreaterOrEqual(t, Of(time.Second), time.Second)
}

func TestABubbleIsKnown(t *testing.T) {
	_, inBubble := computing(time.Millisecond)
	assert.False(t, inBubble)
	synctest.Test(t, func(t *testing.T) {
		_, inBubble := computing(time.Hour)
		assert.True(t, inBubble)
	})
}
