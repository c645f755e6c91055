package schedule_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
)

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
