package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/examples/demos/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

var runs = regexp.MustCompile(`(?m)^tick  (\d) .* (worker-\d)  runs it$`)

func TestEveryTickIsCountedOnceThoughAWorkerIsKilled(t *testing.T) {
	printed, code := stagetest.Run(t, "-workers", "4", "-period", "500ms", "-ticks", "6")
	require.Zero(t, code, "exit code")
	assert.Regexp(t, `\n6 ticks, counter 6: correct\n$`, printed)

	var ran []string
	for _, r := range runs.FindAllStringSubmatch(printed, -1) {
		ran = append(ran, r[1])
	}
	// Only the tick at which a worker was killed may be there twice.
	assert.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, slices.Compact(slices.Clone(ran)), "the ticks that ran")
	assert.LessOrEqual(t, len(ran), 7, "the ticks that ran: %v", ran)
	for _, want := range []string{"skips it: already counted by worker-", "is killed with -9 during the job", "worker-5  is started"} {
		assert.Contains(t, printed, want)
	}
}

// The lock alone counts too much, and the check at the end notices. That may not show if
// the machine is so busy that workers miss ticks, so there are three attempts.
func TestControlTheLockAloneCountsTooMuch(t *testing.T) {
	for range 3 {
		printed, code := stagetest.Run(t, "-workers", "5", "-period", "500ms", "-ticks", "10", "-unguarded")
		if code == 1 && regexp.MustCompile(`\n10 ticks, counter (1[1-9]|[2-5]\d): wrong\n`).MatchString(printed) {
			return
		}
	}
	t.Fatal("it never counted too much")
}

func TestOneWorkerIsEnough(t *testing.T) {
	printed, code := stagetest.Run(t, "-workers", "1", "-period", "300ms", "-ticks", "3")
	require.Zero(t, code, "exit code")
	assert.Regexp(t, `\n3 ticks, counter 3: correct\n$`, printed)
}

func TestABadFlagIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-workers", "0"}, {"-ticks", "0"}, {"-period", "1ms"}} {
		printed, code := stagetest.Run(t, args...)
		assert.Equal(t, 1, code, "exit code of %v", args)
		assert.Contains(t, printed, "must be at least", "%v", args)
	}
}
