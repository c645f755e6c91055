//go:build race

// Package onecore keeps the race detector from crashing where many timers run in virtual time.
package onecore

import (
	"runtime"
	"sync"

	"github.com/mongolock/mongolock/internal/monotonic"
)

var cores struct {
	mu     sync.Mutex // protects the rest
	links  int        // in bubbles
	before int        // GOMAXPROCS without them
}

// Begin has Go code run on one core until done, if the caller is in a bubble of
// testing/synctest. All timers of a bubble have one context of the race detector, and Go 1.26
// uses it from several threads at once: the detector then crashes with a SIGSEGV, which
// the many timers of the driver, or of a thousand leases, bring about in one run of two.
func Begin() (done func()) {
	if !monotonic.InBubble() {
		return func() {}
	}
	cores.mu.Lock()
	defer cores.mu.Unlock()
	if cores.links++; cores.links == 1 {
		cores.before = runtime.GOMAXPROCS(1)
	}
	return func() {
		cores.mu.Lock()
		defer cores.mu.Unlock()
		if cores.links--; cores.links == 0 {
			runtime.GOMAXPROCS(cores.before)
		}
	}
}
