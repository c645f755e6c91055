//go:build knobs

package mongolock_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/knob"
)

// Without its guard an observer that hangs stops the client.
func TestControlAnObserverThatIsAwaitedStopsTheClient(t *testing.T) {
	knob.ObserverAwaited = true
	defer func() { knob.ObserverAwaited = false }()
	for _, op := range observedOps {
		for name, begin := range map[string]bool{"beginning": true, "end": false} {
			t.Run(fmt.Sprintf("%s/%s", op, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wrong := livesWith(t, op, begin)
					assert.NotEmpty(t, wrong)
					t.Log(wrong)
				})
			})
		}
	}
}
