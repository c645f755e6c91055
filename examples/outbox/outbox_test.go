package main

import (
	"regexp"
	"strconv"
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
	for _, want := range []string{"is killed with -9 with message", "again: attempt 2"} {
		if !strings.Contains(printed, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	last := regexp.MustCompile(`60 messages: 0 missing, 0 twice without a mark, (\d+) marked as maybe delivered before, 0 left: correct`).FindStringSubmatch(printed)
	if last == nil {
		t.Fatal("it does not say that all is well")
	}
	// The killed worker's, and one for each claim or lease that a slow machine cost.
	most := 1 + strings.Count(printed, "fails with message") + strings.Count(printed, "asks again")
	if marked, err := strconv.Atoi(last[1]); err != nil || marked < 1 || marked > most {
		t.Errorf("%s marked, and there is reason for %d", last[1], most)
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
