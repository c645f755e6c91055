//go:build knobs

package filestore_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/internal/test/knob"
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

func TestControlAStoreThatJudgesByTheWallClockIsNoticed(t *testing.T) {
	knob.FileByWallClock = true
	defer func() { knob.FileByWallClock = false }()
	disktest.Noticed(t, storms(t, false))
}

func TestControlAStoreThatTakesEachBootForItsOwnIsNoticed(t *testing.T) {
	knob.FileBootIgnored = true
	defer func() { knob.FileBootIgnored = false }()
	disktest.Noticed(t, storms(t, true))
}
