//go:build knobs

package filestore_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/hostfile/disktest"
)

func TestControlAKillIsNoticedIfFilesAreWrittenInPlace(t *testing.T) {
	disktest.KillsAreNoticed(t, openOnDisk)
}

func TestControlAPowerCutIsNoticedIfAnyStepOfAWriteIsLeftOut(t *testing.T) {
	disktest.PowerCutsAreNoticed(t, openOnDisk)
}

func TestControlTokensDrawnWithoutTheLockAreNoticed(t *testing.T) {
	disktest.Noticed(t, sameTokens(t, disktest.Fault+"=LockIgnored"))
}
