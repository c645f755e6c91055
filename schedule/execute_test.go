package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

func TestAPanicIsRecordedAndFreesTheJobBeforeItGoesOn(t *testing.T) {
	cmd := testchild.Command(t, "panic", struct{}{})
	_, err := cmd.StdinPipe() // the process's context ends with its input
	require.NoError(t, err)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit)
	assert.Equal(t, 2, exit.ExitCode())
	for _, want := range []string{
		"0 under way, past: panicked the job's own words\n",
		"panic: the job's own words",
		"schedule_test.panicHere(", // the trace shows the frame that panicked
	} {
		assert.Contains(t, said.String(), want)
	}
}

// panicking runs a job that panics, and prints what the store knows about it then.
func panicking(ctx context.Context, _ struct{}) error {
	s := jobs.NewMemory()
	scheduler, err := schedule.NewWithStore(printing{s})
	if err != nil {
		return err
	}
	err = scheduler.Add("job", schedule.Every(100*time.Millisecond), func(context.Context, schedule.Run) error { panicHere(); return nil })
	if err != nil {
		return err
	}
	return scheduler.Run(ctx)
}

func panicHere() { panic("the job's own words") }

// printing prints the job's state after each end of a run.
type printing struct{ *jobs.Memory }

func (s printing) End(ctx context.Context, e jobs.End) error {
	err := s.Memory.End(ctx, e)
	all, _ := s.Read(ctx, []string{e.Job}, jobs.WithPast)
	fmt.Printf("%d under way, past: %s %s\n", len(all[0].Runs), all[0].Past[0].Outcome, all[0].Past[0].Error)
	return err
}

func TestARunThatStallsIsToldToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, err := schedule.InMemory(schedule.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var took time.Duration
		var cause error
		require.NoError(t, jobs.Add("report", schedule.Every(24*time.Hour), func(runs context.Context, run schedule.Run) error {
			defer cancel()
			began := time.Now()
			for range 60 {
				time.Sleep(50 * time.Second)
				run.Lease.Progress()
			}
			<-runs.Done()
			took, cause = time.Since(began), context.Cause(runs)
			return cause
		}, schedule.With(mongolock.MaxStall(time.Minute))))
		_ = jobs.Run(ctx)
		assert.Equal(t, 51*time.Minute, took)
		assert.ErrorIs(t, cause, mongolock.ErrStalled)
	})
}
