package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/testchild"
	"github.com/mongolock/mongolock/schedule"
)

func TestAPanicIsRecordedAndTheJobFreedAndThenItGoesOn(t *testing.T) {
	cmd := testchild.Command(t, "panic", struct{}{})
	if _, err := cmd.StdinPipe(); err != nil { // its context ends with its input
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 {
		t.Errorf("it ended with %v", err)
	}
	for _, want := range []string{
		"busy \"\", 0 under way, past: panicked the job's own words\n",
		"panic: the job's own words",
		"schedule_test.panicHere(", // the frame that panicked is on the trace
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("not said: %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", &said)
	}
}

// panicking prints what is known of a job that panics, while it does.
func panicking(ctx context.Context, _ struct{}) error {
	s := schedule.NewMemory()
	jobs, err := schedule.NewWithStore(tells{s})
	if err != nil {
		return err
	}
	err = jobs.Add("job", schedule.Every(100*time.Millisecond), func(context.Context, schedule.Run) error { panicHere(); return nil })
	if err != nil {
		return err
	}
	return jobs.Run(ctx)
}

func panicHere() { panic("the job's own words") }

type tells struct{ *schedule.Memory }

func (s tells) Finish(ctx context.Context, e schedule.End) error {
	err := s.Memory.Finish(ctx, e)
	all, _ := s.Look(ctx, []string{e.Job})
	fmt.Printf("busy %q, %d under way, past: %s %s\n", all[0].Busy, len(all[0].Runs), all[0].Past[0].Outcome, all[0].Past[0].Error)
	return err
}
