//go:build go1.26

package simulation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

func TestTheToldHistoryIsTheOneThatTheJudgeReads(t *testing.T) {
	for seed := range uint64(5) {
		out := live(t, seed+1, plain)
		lines := toldLines(t, out)
		judged := *lines[0].Run.Judged
		var logged []string
		for _, l := range lines[1:] {
			switch {
			case l.Event != nil:
				judged.Events = append(judged.Events, *l.Event)
			case l.Message != nil:
				m := *l.Message
				logged = append(logged, logLine(m.Sent, "%s to server ", m.Name))
				if m.Answered > 0 {
					logged = append(logged, logLine(m.Answered, "%s is answered%s", m.Name, m.Answer))
				}
			}
		}
		assert.Equal(t, *out.History, judged, "seed %d", seed+1)
		assert.Equal(t, out.Check(), judged.Check(), "seed %d", seed+1)
		assert.ElementsMatch(t, commandsOf(out.Log), logged, "seed %d", seed+1)
	}
}

func TestControlAHistoryToldWithoutItsGrantsDiffers(t *testing.T) {
	out := live(t, 1, plain)
	lines := toldLines(t, out)
	judged := *lines[0].Run.Judged
	for _, l := range lines {
		if l.Event != nil && l.Event.Kind != history.Granted {
			judged.Events = append(judged.Events, *l.Event)
		}
	}
	assert.NotEqual(t, *out.History, judged)
	assert.NotEqual(t, out.Check(), judged.Check(), "calls without an answer")
}

func toldLines(t *testing.T, out *simulation.Outcome) (lines []simulation.Line) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, out.Tell(&b))
	for from := json.NewDecoder(&b); ; {
		var l simulation.Line
		err := from.Decode(&l)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		lines = append(lines, l)
	}
	require.NotNil(t, lines[0].Run)
	return lines
}

func logLine(at time.Duration, format string, args ...any) string {
	return fmt.Sprintf("%14.9f ", at.Seconds()) + fmt.Sprintf(format, args...)
}

var sent = regexp.MustCompile(`^(.* to server )\d+: `)

// commandsOf returns the lines of a log that say what was sent and answered, without where to.
func commandsOf(log []byte) (commands []string) {
	for l := range strings.Lines(string(log)) {
		l = strings.TrimSuffix(l, "\n")
		if m := sent.FindStringSubmatch(l); m != nil {
			commands = append(commands, m[1])
		} else if strings.Contains(l, " is answered") {
			commands = append(commands, l)
		}
	}
	return commands
}
