//go:build knobs

package pathlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
)

// The control: where reservations are ignored, shared locks that come and go keep the waiter out for as
// long as it waits.
func TestControlAnExclusiveWaiterWhoseReservationIsIgnoredStarves(t *testing.T) {
	knob.PathReservationIgnored = true
	t.Cleanup(func() { knob.PathReservationIgnored = false })
	for on := range inVirtualTime {
		t.Run(on, func(t *testing.T) {
			waited, err := waitAmongReaders(t, on)
			assert.ErrorIs(t, err, context.DeadlineExceeded, "it was served: the reservation is not what keeps it from starving")
			assert.InDelta(t, patience, waited, float64(time.Second))
		})
	}
}
