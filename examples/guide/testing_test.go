package guide

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/mongolocktest"
)

// writeReport stands for the code under test.
func writeReport(ctx context.Context, locks mongolock.Locker, write func(context.Context) error) (string, error) {
	ran, err := mongolock.TryDo(ctx, locks, "report", func(ctx context.Context, _ *mongolock.Lease) error {
		return write(ctx)
	})
	if err == nil && !ran {
		return "skipped", nil
	}
	return "written", err
}

func done(context.Context) error { return nil }

func TestReportIsSkippedWhileAnotherHostWritesIt(t *testing.T) {
	locks := mongolocktest.New(t)
	release := locks.Hold("report")
	outcome, err := writeReport(t.Context(), locks, done)
	assert.NoError(t, err)
	assert.Equal(t, "skipped", outcome)

	release()
	outcome, err = writeReport(t.Context(), locks, done)
	assert.NoError(t, err)
	assert.Equal(t, "written", outcome)
}

func TestReportStopsWhenItsLeaseIsLost(t *testing.T) {
	locks := mongolocktest.New(t)
	_, err := writeReport(t.Context(), locks, func(ctx context.Context) error {
		locks.Lose("report")
		<-ctx.Done()
		return context.Cause(ctx)
	})
	assert.ErrorIs(t, err, mongolock.ErrLost)
}

func TestReportFailsWhileTheDatabaseIsAway(t *testing.T) {
	locks := mongolocktest.New(t)
	away := errors.New("no route to host")
	locks.Fail(away)
	_, err := writeReport(t.Context(), locks, done)
	assert.ErrorIs(t, err, away)

	locks.Fail(nil)
	_, err = writeReport(t.Context(), locks, done)
	assert.NoError(t, err)
}

func TestReportOfThreeHoursKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t) // inside the bubble, with its t
		_, err := writeReport(t.Context(), locks, func(ctx context.Context) error {
			time.Sleep(3 * time.Hour) // virtual: milliseconds, with a thousand renewals
			return ctx.Err()
		})
		assert.NoError(t, err)
	})
}
