package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

var gaps = regexp.MustCompile(`(?m)^process-\d  took over (\d+\.\d\d) s later$`)

func TestAnotherProcessLeadsAfterAKillAndAfterAResignation(t *testing.T) {
	printed, code := stagetest.Run(t, "-ttl", "2s")
	seen := gaps.FindAllStringSubmatch(printed, -1)
	require.Zero(t, code, "exit code")
	require.Len(t, seen, 2, "gaps")
	gap, err := strconv.ParseFloat(seen[0][1], 64)
	require.NoError(t, err)
	// The killed leader's lease lasts for up to 2 s; the rest is for a busy machine.
	assert.GreaterOrEqual(t, gap, 0.5, "seconds without a leader after the kill")
	assert.LessOrEqual(t, gap, 6.0, "seconds without a leader after the kill")
}
