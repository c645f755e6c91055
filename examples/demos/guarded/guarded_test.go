//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/examples/demos/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

// The unfenced document is the control: it shows that the late write was made.
func TestTheFenceRefusesTheWriteOfAPausedHolder(t *testing.T) {
	began := time.Now()
	printed, code := stagetest.Run(t)
	require.Zero(t, code, "exit code")
	assert.Less(t, time.Since(began), 15*time.Second)
	for _, want := range []string{
		`A  checks its lease before it writes that: valid`,
		`A      unfenced document: written`,
		`A      fenced document:   refused \(fence: token (\d+) is outdated: (\d+) has written\)`,
		`A  checks its lease again: mongolock: lease is lost`,
		`The unfenced document says 41 orders, by A`,
		`The fenced document says 42 orders, by B`,
	} {
		assert.Regexp(t, want, printed)
	}
}
