//go:build knobs

package mongolock_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/knob"
)

// If renewals and the ends of leases wait for the observer, other leases suffer from one that hangs.
func TestControlAnObserverThatIsAwaitedDelaysOtherLeases(t *testing.T) {
	knob.ObserverAwaited = true
	defer func() { knob.ObserverAwaited = false }()
	for name, begin := range map[mongolock.Op]bool{mongolock.OpRenew: true, mongolock.OpHold: false} {
		t.Run(string(name), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wrong := harm(t, name, begin)
				assert.NotEmpty(t, wrong)
				t.Log(wrong)
			})
		})
	}
}
