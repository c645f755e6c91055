//go:build knobs

package pathlock_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/hostfile/disktest"
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
