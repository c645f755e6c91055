package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mongolock/mongolock/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

func TestEveryMessageIsRelayedThoughAWorkerIsKilled(t *testing.T) {
	printed, code := stagetest.Run(t)
	if code != 0 || !strings.HasSuffix(printed, ": correct\n") {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{
		"is killed with -9 with message", "again: attempt 2",
		`60 messages: 0 missing, 0 twice without a mark, [1-9]\d* marked as maybe delivered before, 0 left: correct`,
	} {
		if !regexp.MustCompile(want).MatchString(printed) {
			t.Errorf("it does not say %q", want)
		}
	}
}

// The control: without the mark the message of the killed worker counts as delivered
// twice, and the check says so.
func TestControlWithoutTheMarkTheKillShows(t *testing.T) {
	printed, code := stagetest.Run(t, "-unmarked")
	if code != 1 || !regexp.MustCompile(`[1-9]\d* twice without a mark`).MatchString(printed) {
		t.Fatalf("exit code %d", code)
	}
}

func TestWhatCannotBeAskedForIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-workers", "1"}, {"-messages", "1"}, {"-ttl", "1ms"}, {"-job", "0s"}} {
		printed, code := stagetest.Run(t, args...)
		if code != 1 || !strings.Contains(printed, "must be at least") {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
