//go:build unix

package main

import (
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onUp calls up when what is written says that the command is up.
type onUp struct{ up func() }

func (w onUp) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "up\n") {
		w.up()
	}
	return len(b), nil
}

func TestASignalReachesTheTestsInTheirSession(t *testing.T) {
	var out io.Writer = onUp{func() { assert.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM)) }}
	code, err := run([]string{"sh", "-c", `trap "exit 7" TERM; echo up; while :; do sleep 0.05; done`}, out)
	require.NoError(t, err)
	assert.Equal(t, 7, code)
}
