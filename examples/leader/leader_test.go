package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/mongolock/mongolock/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

var gaps = regexp.MustCompile(`(?m)^process-\d  took over (\d+\.\d\d) s later$`)

func TestThreeLeadersFollowEachOther(t *testing.T) {
	printed, code := stagetest.Run(t, "-ttl", "2s")
	seen := gaps.FindAllStringSubmatch(printed, -1)
	if code != 0 || len(seen) != 2 {
		t.Fatalf("exit code %d, %d gaps", code, len(seen))
	}
	// The killed one's lease lasts for up to 2 s; the room above is for a busy machine.
	if gap, _ := strconv.ParseFloat(seen[0][1], 64); gap < 0.5 || gap > 6 {
		t.Errorf("after the kill nobody led for %v s", gap)
	}
}
