// Package stagetest runs an example as what it is, a program, from its test.
package stagetest

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

const env = "MONGOLOCK_EXAMPLE_TEST"

// Main is for TestMain: the test's own binary is the example if Run starts it.
func Main(m *testing.M, main func()) {
	if os.Getenv(env) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Run runs the example and returns what it printed and its exit code. The server
// is that of MONGODB_URI, else the one built in.
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
