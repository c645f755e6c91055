package kubelock

import (
	"testing"

	"github.com/mongolock/mongolock"
)

// TrustAnyLease takes the safety out: Create and Update succeed however little of the lease
// is left, as they do on a Lease object.
func TrustAnyLease(t *testing.T) {
	was := outlasts
	outlasts = func(*mongolock.Lease, *Timing) bool { return true }
	t.Cleanup(func() { outlasts = was })
}
