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
	var wrong []string
	for range 20 { // whether two processes draw at one moment is chance
		if wrong = sameTokens(t, disktest.Fault+"=LockIgnored"); len(wrong) > 0 {
			break
		}
	}
	disktest.Noticed(t, wrong)
}
