//go:build knobs

package disktest

import (
	"os"
	"testing"

	"github.com/mongolock/mongolock/internal/knob"
)

var faults = map[string]*bool{
	"WriteInPlace":      &knob.WriteInPlace,
	"FileUnsynced":      &knob.FileUnsynced,
	"DirectoryUnsynced": &knob.DirectoryUnsynced,
	"LockIgnored":       &knob.LockIgnored,
}

func init() {
	if fault := faults[os.Getenv(Fault)]; fault != nil {
		*fault = true
	}
}

// Noticed wants something to be wrong.
func Noticed(t *testing.T, wrong []string) {
	t.Helper()
	if len(wrong) == 0 {
		t.Fatal("nobody noticed")
	}
	t.Logf("noticed %d times: %s", len(wrong), wrong[0])
}

// KillsAreNoticed wants the safety that is there for kills to be missed.
func KillsAreNoticed(t *testing.T, open Open) {
	lost, _ := killAtEachStep(t, open, "WriteInPlace")
	Noticed(t, lost)
}

// PowerCutsAreNoticed wants each safety that is there for power cuts to be missed.
func PowerCutsAreNoticed(t *testing.T, open Open) {
	for _, name := range []string{"WriteInPlace", "FileUnsynced", "DirectoryUnsynced"} {
		t.Run(name, func(t *testing.T) {
			defer func() { *faults[name] = false }()
			*faults[name] = true
			lost, _ := cutAtEachStep(open)
			Noticed(t, lost)
		})
	}
}
