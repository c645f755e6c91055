//go:build unix

package main

import (
	"regexp"
	"testing"
	"time"

	"github.com/mongolock/mongolock/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

// The unfenced document is the control: it shows that the late write did come.
func TestTheFenceRefusesTheWriteThatThePausedHolderMakes(t *testing.T) {
	began := time.Now()
	printed, code := stagetest.Run(t)
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, want := range []string{
		`A  checks its lease before it writes that: good`,
		`A      unfenced document: written`,
		`A      fenced document:   refused \(fence: token (\d+) is outdated: (\d+) has written\)`,
		`A  checks its lease again: mongolock: lease is lost`,
		`The unfenced document says 41 orders, by A`,
		`The fenced document says 42 orders, by B`,
	} {
		if !regexp.MustCompile(want).MatchString(printed) {
			t.Errorf("it does not say %s", want)
		}
	}
}
