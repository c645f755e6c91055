//go:build knobs

package disktest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/knob"
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

// Noticed checks that something is wrong.
func Noticed(t *testing.T, wrong []string) {
	t.Helper()
	require.NotEmpty(t, wrong, "the fault was not noticed")
	t.Logf("noticed %d times: %s", len(wrong), wrong[0])
}

// KillsAreNoticed checks that OutliveKills fails without the safety against kills.
func KillsAreNoticed(t *testing.T, open Open) {
	lost, _ := killAtEachStep(t, open, "WriteInPlace")
	Noticed(t, lost)
}

// PowerCutsAreNoticed checks that OutlivePowerCuts fails without any of the safeties against
// power cuts.
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
