// Package stagetest runs an example from its test as what it is, a program.
package stagetest

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

const env = "MONGOLOCK_EXAMPLE_TEST"

// Main is for TestMain: in a process that Run starts, the test's own program is the
// example.
func Main(m *testing.M, main func()) {
	if os.Getenv(env) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Run runs the example and returns its output and exit code. The server is that of
// MONGODB_URI, or else the one that is built in.
func Run(t *testing.T, args ...string) (printed string, code int) {
	t.Helper()
	if uri := os.Getenv("MONGODB_URI"); uri != "" {
		args = append(args, "-uri", uri)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), env+"=1")
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("%s", out)
	return string(out), cmd.ProcessState.ExitCode()
}
