package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/examples/demos/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

func TestNoTurnsOverlapThoughTheHolderIsKilled(t *testing.T) {
	for name, args := range map[string][]string{
		"on the server of the tests, or else one that is embedded": nil,
		"in files": {"-files"},
	} {
		t.Run(name, func(t *testing.T) {
			printed, code := stagetest.Run(t, append(args, "-turns", "6")...)
			require.Zero(t, code, "exit code")
			assert.Regexp(t, `\n6 turns, counter 6, never two at once, every token higher than the last: correct\n$`, printed)
			assert.Equal(t, 1, strings.Count(printed, "KILLED (kill -9)"), "kills")
			assert.Equal(t, 7, strings.Count(printed, "HAS THE LOCK"), "grants: the six turns, and the one that was cut short")
		})
	}
}

func TestControlWithoutALockTurnsOverlapAndCountsAreLost(t *testing.T) {
	printed, code := stagetest.Run(t, "-files", "-turns", "6", "-unguarded")
	assert.Equal(t, 1, code, "exit code")
	assert.Contains(t, printed, "were in it at once")
}

func TestAServerThatIsNamedAndDoesNotAnswerIsAnError(t *testing.T) {
	t.Setenv("MONGODB_URI", "mongodb://127.0.0.1:1/?connectTimeoutMS=200")
	printed, code := stagetest.Run(t)
	assert.Equal(t, 1, code, "exit code")
	assert.Contains(t, printed, "the server of MONGODB_URI or -uri cannot be used")
	assert.NotContains(t, printed, "The lock is kept", "no other place is taken instead")
}

// The build may take minutes. A go that never ends stands for it.
func TestTheDemoSpeaksBeforeItBuilds(t *testing.T) {
	tools := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(tools, "go"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o700)) //nolint:gosec // a program
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "bash", "../demo.sh")
	cmd.Env = append(os.Environ(), "PATH="+tools+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	assert.Contains(t, lines.Text(), "three processes, one lock")
	require.True(t, lines.Scan())
	assert.Contains(t, lines.Text(), "(1/2) build: ")
	cancel()
	_ = cmd.Wait() // it was killed
}
