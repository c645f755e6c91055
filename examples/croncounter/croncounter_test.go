package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mongolock/mongolock/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

var runs = regexp.MustCompile(`(?m)^tick  (\d) .* (worker-\d)  runs it$`)

func TestEveryTickIsCountedOnceThoughAWorkerIsKilled(t *testing.T) {
	printed, code := stagetest.Run(t, "-workers", "4", "-period", "500ms", "-ticks", "6")
	if code != 0 || !strings.HasSuffix(printed, "\n6 ticks, counter 6: correct\n") {
		t.Fatalf("exit code %d", code)
	}
	var ran []string
	for _, r := range runs.FindAllStringSubmatch(printed, -1) {
		ran = append(ran, r[1])
	}
	// One tick may be there twice: that at which a worker was killed.
	if ticks := slices.Compact(slices.Clone(ran)); !slices.Equal(ticks, []string{"1", "2", "3", "4", "5", "6"}) || len(ran) > 7 {
		t.Errorf("it says that these ticks ran: %v", ran)
	}
	for _, want := range []string{"skips it: already counted by worker-", "is killed with -9 at work", "worker-5  is started"} {
		if !strings.Contains(printed, want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

// The control: the lock alone counts too much, and the check at the end says so. On
// a machine so busy that workers miss ticks that may not show, so it has three tries.
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
	if code != 0 || !strings.HasSuffix(printed, "\n3 ticks, counter 3: correct\n") {
		t.Fatalf("exit code %d", code)
	}
}

func TestWhatCannotBeAskedForIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-workers", "0"}, {"-ticks", "0"}, {"-period", "1ms"}} {
		printed, code := stagetest.Run(t, args...)
		if code != 1 || !strings.Contains(printed, "must be at least") {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
