//go:build knobs

package disktest

import (
	"testing"

	"github.com/mongolock/mongolock/internal/knob"
)

var faults = map[string]*bool{
	"WriteInPlace":      &knob.WriteInPlace,
	"FileUnsynced":      &knob.FileUnsynced,
	"DirectoryUnsynced": &knob.DirectoryUnsynced,
	"LockIgnored":       &knob.LockIgnored,
}

// Break takes a safety of files out, by the name of its switch, for the rest of the
// process: a child's.
func Break(name string) {
	if fault := faults[name]; fault != nil {
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

// PowerCutsAreNoticed wants each safety that is there for power cuts to be missed.
func PowerCutsAreNoticed(t *testing.T, cut func() (lost []string)) {
	for _, name := range []string{"WriteInPlace", "FileUnsynced", "DirectoryUnsynced"} {
		t.Run(name, func(t *testing.T) {
			defer func() { *faults[name] = false }()
			*faults[name] = true
			Noticed(t, cut())
		})
	}
}
