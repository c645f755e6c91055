package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
)

func TestJobsCheckTellsWhatIsOverdueFailingPausedOrMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, err := schedule.InMemory(schedule.WithOwner("worker-3"), schedule.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		check := func(c jobsCheckCmd) (code int, said string) {
			var out bytes.Buffer
			code, say := verdict(c.tell(&app{cli: new(cli), stdout: &out}, c.look(t.Context(), jobs, "app.jobs")))
			assert.Empty(t, say)
			return code, out.String()
		}
		minutes := jobsCheckCmd{Overdue: 15 * time.Minute}
		code, said := check(minutes)
		assert.Equal(t, 2, code)
		assert.Equal(t, "JOBS CRITICAL: 1 of 1 not well: there is no job in app.jobs\n\tCRITICAL\tthere is no job in app.jobs\n", said)

		paper := errors.New("no paper")
		require.NoError(t, jobs.Add("print", schedule.Every(24*time.Hour), func(context.Context, schedule.Run) error { return paper }))
		require.NoError(t, jobs.Add("import", schedule.Every(time.Hour), func(ctx context.Context, _ schedule.Run) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- jobs.Run(ctx) }()
		time.Sleep(time.Minute)
		code, said = check(minutes)
		assert.Zero(t, code)
		assert.Equal(t, "JOBS OK: 2 well\n", said)
		code, said = check(jobsCheckCmd{Quiet: true})
		assert.Zero(t, code)
		assert.Empty(t, said)

		time.Sleep(24 * time.Hour)
		code, said = check(minutes)
		assert.Equal(t, 2, code)
		assert.Equal(t, "JOBS CRITICAL: 2 of 2 not well: import overdue for 22h1m: the run before it has gone on for 23h1m, by worker-3\n"+
			"import\tCRITICAL\toverdue for 22h1m: the run before it has gone on for 23h1m, by worker-3\n"+
			"print\tWARNING\tfailed at 2000-01-02T00:00:00Z; it has not succeeded yet: no paper\n", said)
		code, _ = check(jobsCheckCmd{Overdue: 23 * time.Hour})
		assert.Equal(t, 1, code)
		code, _ = check(jobsCheckCmd{Overdue: 23 * time.Hour, Jobs: []string{"import"}})
		assert.Zero(t, code)
		code, said = check(jobsCheckCmd{Overdue: 23 * time.Hour, Jobs: []string{"import", "clean-up"}})
		assert.Equal(t, 2, code)
		assert.Equal(t, "JOBS CRITICAL: 1 of 2 not well: clean-up not known in app.jobs: no process has had it\nclean-up\tCRITICAL\tnot known in app.jobs: no process has had it\n", said)

		paper = nil
		time.Sleep(24 * time.Hour)
		stop()
		require.NoError(t, <-over)
		require.NoError(t, jobs.Pause(t.Context(), "import"))
		time.Sleep(25 * time.Hour)
		code, said = check(minutes)
		assert.Equal(t, 2, code)
		assert.Contains(t, said, "print\tCRITICAL\toverdue for 1h1m: no process runs it; it last succeeded at 2000-01-03T00:00:00Z\n")
		code, said = check(jobsCheckCmd{Jobs: []string{"import"}})
		assert.Equal(t, 1, code)
		assert.Contains(t, said, "import\tWARNING\tpaused; it has not succeeded yet\n")
	})
}

func TestJobsCheckKnowsAPlanThatItCannotRead(t *testing.T) {
	h := healthOf(schedule.State{Known: true, PlanErr: schedule.ErrPlan}, 0, "")
	assert.Equal(t, statusUnknown, h.Status)
	assert.Equal(t, "the plan cannot be read here", h.Says)
}

func TestJobsCheckTellsOfAClaimByAWrongClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	assert.Equal(t, statusOK, healthOf(schedule.State{Known: true, Now: now, Decided: now.Add(time.Second)}, 0, "").Status)
	h := healthOf(schedule.State{Known: true, Now: now, Decided: now.Add(20 * time.Hour)}, 0, "")
	assert.Equal(t, statusWarning, h.Status)
	assert.Equal(t, "claimed for 2026-01-01T20:00:00Z, by a clock that was wrong: it waits until then, or for jobs forget", h.Says)
}
