package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mongolock/mongolock/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

var (
	holds = regexp.MustCompile(`(?m)^(\S+) +pid (\d+)  has the lock, with token (\d+),`)
	late  = regexp.MustCompile(`(?m)^finisher-\d +pid \d+  comes too late`)
)

func TestOneOfTwoTakesUpTheTicketAndKeepsTheToken(t *testing.T) {
	printed, code := stagetest.Run(t)
	if code != 0 || !strings.HasSuffix(printed, "\nTwo steps by two processes under one token: correct\n") {
		t.Fatalf("exit code %d", code)
	}
	had := holds.FindAllStringSubmatch(printed, -1)
	if len(had) != 2 {
		t.Fatalf("%d had the lock", len(had))
	}
	before, after := had[0], had[1]
	if before[1] != "receiver" || !strings.HasPrefix(after[1], "finisher-") || before[2] == after[2] || before[3] != after[3] {
		t.Errorf("%q, then %q", before[0], after[0])
	}
	if n := len(late.FindAllString(printed, -1)); n != 1 {
		t.Errorf("%d came too late", n)
	}
	if !strings.Contains(printed, "onlooker  ") || !strings.Contains(printed, "held by receiver, which is gone") {
		t.Error("nobody tried the key in between")
	}
}
