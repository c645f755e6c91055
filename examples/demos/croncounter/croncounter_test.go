package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// In a process that played starts, the test's own program is the demo.
func TestMain(m *testing.M) {
	if os.Getenv("MONGOLOCK_DEMO_TEST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func played(t *testing.T, args ...string) (printed string, code int) {
	t.Helper()
	t.Setenv("MONGOLOCK_DEMO_TEST", "1")
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...) //nolint:gosec // this program
	out, _ := cmd.CombinedOutput()                               // how it ended is the code
	t.Logf("%s", out)
	return string(out), cmd.ProcessState.ExitCode()
}

func TestNoTurnsOverlapThoughTheHolderIsKilled(t *testing.T) {
	printed, code := played(t)
	assert.Zero(t, code, "exit code")
	assert.Regexp(t, `\n8 turns, counter 8, never two at once, every token higher than the last: correct\n$`, printed)
	assert.Equal(t, 1, strings.Count(printed, "KILLED (kill -9)"), "kills")
	assert.Equal(t, 9, strings.Count(printed, "HAS THE LOCK"), "grants: the eight turns, and the one that was cut short")
}

func TestControlWithoutALockTurnsOverlapAndCountsAreLost(t *testing.T) {
	printed, code := played(t, "-unguarded")
	assert.Equal(t, 1, code, "exit code")
	assert.Contains(t, printed, "were in it at once")
}
