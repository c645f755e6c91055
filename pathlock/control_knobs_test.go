//go:build knobs

package pathlock_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/pathlock"
)

func TestControlAKillInAWriteInPlaceIsNoticed(t *testing.T) {
	disktest.KillsAreNoticed(t, openOnDisk)
}

func TestControlAPowerCutIsNoticedWithoutEachStepOfAWrite(t *testing.T) {
	disktest.PowerCutsAreNoticed(t, openOnDisk)
}

func TestControlADirectoryWithoutFileLocksIsNoticed(t *testing.T) {
	ledgerShows(t, place{Dir: disktest.InMemory(t)}, disktest.Fault+"=LockIgnored")
}

// faults are the safeties that a child process goes without.
var faults = map[string]*bool{
	"the look after the lock was added": &knob.PathWithoutLook,
	"locks in doubt in the way":         &knob.PathDoubtIgnored,
}

const envFault = "MONGOLOCK_TEST_PATHS_WITHOUT"

func init() {
	if out := faults[os.Getenv(envFault)]; out != nil {
		*out = true
	}
}

func TestControlALockOnMongoWithoutItsSafetiesIsNoticed(t *testing.T) {
	for fault := range faults {
		t.Run(fault, func(t *testing.T) { ledgerShows(t, onMongo(pathlock.NewPlaceOnMongo(t)), envFault+"="+fault) })
	}
}

// ledgerShows runs processes that lack a safety until the ledger shows it.
func ledgerShows(t *testing.T, where place, env ...string) {
	t.Helper()
	shown := func(g *ledger) bool {
		conflicts, _ := g.replay()
		return len(conflicts) > 0 || len(g.faults) > 0
	}
	g := crowd(t, where, shown, env...)
	assert.True(t, shown(g), "%d grants, and no conflict or fault: the test cannot fail", len(g.spans))
	conflicts, _ := g.replay()
	t.Logf("shown after %d grants and %d kills: %d conflicts, %d faults", len(g.spans), g.kills, len(conflicts), len(g.faults))
}

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
