//go:build knobs

package filestore_test

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

func TestControlTokensAreNoticedThatAreDrawnWithoutTheLock(t *testing.T) {
	disktest.Noticed(t, sameTokens(t, disktest.Fault+"=LockIgnored"))
}
