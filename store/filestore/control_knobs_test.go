//go:build knobs

package filestore_test

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

func TestControlTokensAreNoticedThatAreDrawnWithoutTheLock(t *testing.T) {
	disktest.Noticed(t, sameTokens(t, childFault+"=LockIgnored"))
}
