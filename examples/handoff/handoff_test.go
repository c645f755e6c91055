package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

var (
	holds = regexp.MustCompile(`(?m)^(\S+) +pid (\d+)  has the lock, with token (\d+),`)
	late  = regexp.MustCompile(`(?m)^finisher-\d +pid \d+  comes too late`)
)

func TestOneOfTwoResumesTheTicketAndKeepsTheToken(t *testing.T) {
	printed, code := stagetest.Run(t)
	require.Zero(t, code, "exit code")
	assert.Regexp(t, "\nTwo steps by two processes under one token: correct\n$", printed)

	had := holds.FindAllStringSubmatch(printed, -1)
	require.Len(t, had, 2, "processes that had the lock")
	before, after := had[0], had[1]
	assert.Equal(t, "receiver", before[1])
	assert.Contains(t, after[1], "finisher-")
	assert.NotEqual(t, before[2], after[2], "the process IDs")
	assert.Equal(t, before[3], after[3], "the tokens")

	assert.Len(t, late.FindAllString(printed, -1), 1, "processes that came too late")
	assert.Contains(t, printed, "onlooker  ", "another process tries the key in between")
	assert.Contains(t, printed, "held by receiver, which is gone")
}
