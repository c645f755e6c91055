package schedule_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

func nothing(context.Context, schedule.Run) error { return nil }

func scheduler(t testing.TB, opts ...schedule.Option) *schedule.Scheduler {
	t.Helper()
	s, err := schedule.NewWithStore(jobs.NewMemory(), append([]schedule.Option{schedule.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(t, err)
	return s
}

func TestWrongArgumentsAreRefusedByName(t *testing.T) {
	minute := schedule.Every(time.Minute)
	for want, add := range map[string]func(*schedule.Scheduler) error{
		"Every(0s): the period must be positive":                               func(s *schedule.Scheduler) error { return s.Add("j", schedule.Every(0), nothing) },
		"Every(-1s): the period must be positive":                              func(s *schedule.Scheduler) error { return s.Add("j", schedule.Every(-time.Second), nothing) },
		"Every(1ms): the period must be at least 10ms":                         func(s *schedule.Scheduler) error { return s.Add("j", schedule.Every(time.Millisecond), nothing) },
		"Every(1.0000005s): the period must be a whole number of milliseconds": func(s *schedule.Scheduler) error { return s.Add("j", schedule.Every(time.Second+500), nothing) },
		"the plan is nil":                                func(s *schedule.Scheduler) error { return s.Add("j", nil, nothing) },
		"fn is nil":                                      func(s *schedule.Scheduler) error { return s.Add("j", minute, nil) },
		"Add: the job's name is empty":                   func(s *schedule.Scheduler) error { return s.Add("", minute, nothing) },
		"the job's name has 513 bytes: at most 512":      func(s *schedule.Scheduler) error { return s.Add(strings.Repeat("j", 513), minute, nothing) },
		`Add("\xff"): the job's name is not valid UTF-8`: func(s *schedule.Scheduler) error { return s.Add("\xff", minute, nothing) },
		"MaxLate(0s): must be at least a millisecond":    func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.MaxLate(0)) },
		"With(Shared()): a due time is claimed by one process": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.Shared()))
		},
		"With(OneOf(3)): a due time is claimed by one process": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.OneOf(3)))
		},
		"With(MinHold(1s)): a due time is claimed once": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.MinHold(time.Second)))
		},
		`With(Note("n")): a job's runs have no note`: func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.Note("n")))
		},
		"With(MaxWait(1s)): a claim does not wait": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.MaxWait(time.Second)))
		},
		"At(1960-01-01": func(s *schedule.Scheduler) error {
			return s.Add("j", schedule.At(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)), nothing)
		},
		"Keep(0): must be between 1 and 1,000": func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.Keep(0)) },
		"With: mongolock: a nil":               func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.With(nil)) },
		"TTL(1ns): must be between": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.TTL(1)))
		},
		"a nil JobOption":                 func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, nil) },
		"Job: the job's name is empty":    func(s *schedule.Scheduler) error { _, err := s.Job(t.Context(), ""); return err },
		"Forget: the job's name is empty": func(s *schedule.Scheduler) error { return s.Forget(t.Context(), "") },
	} {
		assert.ErrorContains(t, add(scheduler(t)), want)
	}
	for want, opt := range map[string]schedule.Option{
		"WithWorkers(0): must be at least 1":    schedule.WithWorkers(0),
		"WithJitter(-1s): must not be negative": schedule.WithJitter(-time.Second),
		"WithGrace(-1s): must not be negative":  schedule.WithGrace(-time.Second),
		`WithOwner(""): must be 1 to 256 bytes`: schedule.WithOwner(""),
		"WithLogger(nil): must not be nil":      schedule.WithLogger(nil),
		"WithEvents(nil): must not be nil":      schedule.WithEvents(nil),
		"a nil Option":                          nil,
	} {
		_, err := schedule.NewWithStore(jobs.NewMemory(), opt)
		assert.ErrorContains(t, err, want)
	}
	_, err := schedule.New(nil)
	assert.ErrorContains(t, err, "the collection is nil")
}

func TestAllBadOptionsAreNamedAtOnce(t *testing.T) {
	_, err := schedule.New(nil, nil, schedule.WithWorkers(0), schedule.WithOwner(""))
	for _, want := range []string{"the collection is nil", "a nil Option", "WithWorkers(0)", `WithOwner("")`} {
		assert.ErrorContains(t, err, want)
	}
	err = scheduler(t).Add("", nil, nil, nil, schedule.Keep(0))
	for _, want := range []string{"the job's name is empty", "the plan is nil", "fn is nil", "a nil JobOption", "Keep(0)"} {
		assert.ErrorContains(t, err, want)
	}
}

func TestTwoJobsOfOneNameAreRefused(t *testing.T) {
	s := scheduler(t)
	require.NoError(t, s.Add("job", schedule.Every(time.Minute), nothing))
	err := s.Add("job", schedule.Every(time.Hour), nothing)
	require.ErrorIs(t, err, schedule.ErrDuplicate)
	assert.ErrorContains(t, err, `"job"`)
	assert.True(t, s.Remove("job"))
	assert.False(t, s.Remove("job"), "a second time")
	assert.NoError(t, s.Add("job", schedule.Every(time.Hour), nothing))
}
