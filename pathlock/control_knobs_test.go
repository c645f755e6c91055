//go:build knobs

package pathlock_test

import (
	"os"
	"testing"

	"github.com/mongolock/mongolock/internal/hostfile/disktest"
)

func init() { disktest.Break(os.Getenv(childFault)) }

func TestControlAKillInAWriteInPlaceIsNoticed(t *testing.T) {
	lost, _ := killAtEachStep(t, "WriteInPlace")
	disktest.Noticed(t, lost)
}

func TestControlAPowerCutIsNoticedWithoutEachStepOfAWrite(t *testing.T) {
	disktest.PowerCutsAreNoticed(t, func() []string {
		lost, _ := cutAtEachStep()
		return lost
	})
}

func TestControlTheLedgerShowsADirectoryWithoutLocks(t *testing.T) {
	ledgerShows(t, disktest.InMemory(t), childFault+"=LockIgnored")
}
