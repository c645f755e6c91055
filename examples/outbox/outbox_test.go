package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

func TestEveryMessageIsRelayedThoughAWorkerIsKilled(t *testing.T) {
	printed, code := stagetest.Run(t)
	require.Zero(t, code, "exit code")
	assert.Contains(t, printed, "is killed with -9 after it has delivered message")
	assert.Contains(t, printed, "again: attempt 2")

	last := regexp.MustCompile(`\n60 messages: 0 missing, 0 twice without a mark, (\d+) marked as possible repetitions, 0 left: correct\n$`).FindStringSubmatch(printed)
	require.NotNil(t, last, "it does not report success")
	marked, err := strconv.Atoi(last[1])
	require.NoError(t, err)
	// The killed worker's message, and one for each claim or lease that a slow machine cost.
	most := 1 + strings.Count(printed, "fails to relay message") + strings.Count(printed, "claims again")
	assert.GreaterOrEqual(t, marked, 1, "marked messages")
	assert.LessOrEqual(t, marked, most, "marked messages")
}

// Without the mark the message of the killed worker counts as delivered twice.
func TestControlTheKillIsNoticedWithoutTheMark(t *testing.T) {
	printed, code := stagetest.Run(t, "-unmarked")
	require.Equal(t, 1, code, "exit code")
	assert.Regexp(t, `[1-9]\d* twice without a mark`, printed)
}

func TestABadFlagIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-workers", "1"}, {"-messages", "1"}, {"-ttl", "1ms"}, {"-job", "0s"}} {
		printed, code := stagetest.Run(t, args...)
		assert.Equal(t, 1, code, "exit code of %v", args)
		assert.Contains(t, printed, "must be at least", "%v", args)
	}
}
