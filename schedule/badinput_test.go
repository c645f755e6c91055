package schedule_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
)

func nothing(context.Context, schedule.Run) error { return nil }

func scheduler(t testing.TB, opts ...schedule.Option) *schedule.Scheduler {
	t.Helper()
	s, err := schedule.NewWithStore(schedule.NewMemory(), append([]schedule.Option{schedule.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
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
		`OnOverlap("wait"): must be one of ["skip" "queue one" "queue all" "allow"]`: func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.OnOverlap("wait")) },
		`OnMissed("some"): must be one of ["none" "one" "all"]`:                      func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.OnMissed("some")) },
		`OnDeath("never"): must be one of ["next fire" "at once"]`:                   func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.OnDeath("never")) },
		`OnOverlap("queue all"): needs OnMissed("all")`: func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.OnOverlap(schedule.QueueAll))
		},
		"Keep(0): must be between 1 and 1,000": func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.Keep(0)) },
		"Lease: a nil Option":                  func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.Lease(nil)) },
		"TTL(1ns): must be between": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.Lease(mongolock.TTL(1)))
		},
		"a nil JobOption":                 func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, nil) },
		"Job: the job's name is empty":    func(s *schedule.Scheduler) error { _, err := s.Job(t.Context(), ""); return err },
		"Forget: the job's name is empty": func(s *schedule.Scheduler) error { return s.Forget(t.Context(), "") },
	} {
		if err := add(scheduler(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	for want, opt := range map[string]schedule.Option{
		"WithWorkers(0): must be at least 1":    schedule.WithWorkers(0),
		"WithJitter(-1s): must not be negative": schedule.WithJitter(-time.Second),
		"WithGrace(-1s): must not be negative":  schedule.WithGrace(-time.Second),
		`WithOwner(""): must be 1 to 256 bytes`: schedule.WithOwner(""),
		"WithLogger(nil): must not be nil":      schedule.WithLogger(nil),
		"WithObserver(nil): must not be nil":    schedule.WithObserver(nil),
		"a nil Option":                          nil,
	} {
		if _, err := schedule.NewWithStore(schedule.NewMemory(), opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := schedule.NewWithStore(nil); err == nil || !strings.Contains(err.Error(), "the store is nil") {
		t.Error(err)
	}
	if _, err := schedule.New(nil); err == nil || !strings.Contains(err.Error(), "the collection is nil") {
		t.Error(err)
	}
}

func TestABadExpressionIsRefusedWithItsPosition(t *testing.T) {
	for expression, want := range map[string]struct {
		offset int
		says   string
	}{
		"":                      {0, "there is no expression"},
		"   ":                   {3, "there is no expression"},
		"0 25 * * *":            {2, `at position 3 ("25"): hour: end of range (25) above maximum (23)`},
		"0  3 * foo *":          {7, `("foo"): month:`},
		"61 * * * *":            {0, "minute:"},
		"*/0 * * * *":           {0, "minute:"},
		"9-3 * * * *":           {0, "minute:"},
		"* * * * * * *":         {12, "7 fields: must be 5, or 6 with seconds"},
		"* * * *":               {6, "4 fields"},
		"60 * * * * *":          {0, "second:"},
		"TZ=Foo":                {0, `no such time zone: "Foo"`},
		"TZ=Foo 0 3 * * *":      {0, `no such time zone: "Foo"`},
		"TZ=UTC":                {6, "there is no expression"},
		"CRON_TZ=Europe/Berlin": {21, "there is no expression"},
		"TZ= 0 3 * * *":         {0, "no such time zone"},
		"TZ=Local 0 3 * * *":    {0, "no such time zone"},
		"TZ=UTC TZ=Foo":         {7, "1 fields"},
		"TZ=UTC TZ=Foo * * * *": {7, "minute:"},
		"* * * * CRON_TZ=Foo":   {8, "day of week:"},
		"@sometimes":            {0, "@sometimes"},
		"@every":                {0, "@every"},
		"@every 0s":             {7, "must be positive"},
		"@every soon":           {7, "invalid duration"},
		"@daily 5":              {7, "nothing may follow @daily"},
		"0 0 30 2 *":            {0, "it is never due"},
		"\x00 * * * *":          {0, "minute:"},
	} {
		err := scheduler(t).Add("j", schedule.Cron(expression), nothing)
		wrong, ok := errors.AsType[*schedule.CronError](err)
		if !ok || wrong.Offset != want.offset || wrong.Expression != expression || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%q: %v (%+v)", expression, err, wrong)
		}
	}
}

func FuzzNoExpressionPanics(f *testing.F) {
	for _, e := range []string{"TZ=Foo", "CRON_TZ=UTC", "0 3 * * *", "@every 1s", "TZ=UTC TZ=x * * * *", "1-", "*/", ",", "@"} {
		f.Add(e)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, e string) {
		if next := schedule.Cron(e).Next(now); !next.IsZero() && !next.After(now) {
			t.Errorf("%q is due at %v after %v", e, next, now)
		}
	})
}

func TestCronFiresAreTheSameWhateverTheHostsZone(t *testing.T) {
	from := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for expression, want := range map[string]time.Time{
		"0 3 * * *":                       time.Date(2026, 3, 29, 3, 0, 0, 0, time.UTC),
		"@daily":                          time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC),
		"CRON_TZ=Europe/Berlin 0 3 * * *": time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), // summer time has begun by then
		"30 0 12 * * *":                   time.Date(2026, 3, 28, 12, 0, 30, 0, time.UTC),
		"@every 90m":                      time.Date(2026, 3, 28, 13, 30, 0, 0, time.UTC),
	} {
		if got := schedule.Cron(expression).Next(from.In(time.FixedZone("a host's", 3600))); !got.Equal(want) {
			t.Errorf("%q: %v, not %v", expression, got, want)
		}
	}
}

func TestTwoJobsOfOneNameAreRefused(t *testing.T) {
	s := scheduler(t)
	if err := s.Add("job", schedule.Every(time.Minute), nothing); err != nil {
		t.Fatal(err)
	}
	if err := s.Add("job", schedule.Every(time.Hour), nothing); !errors.Is(err, schedule.ErrDuplicate) || !strings.Contains(err.Error(), `"job"`) {
		t.Errorf("%v", err)
	}
	if !s.Remove("job") || s.Remove("job") {
		t.Error("removed once, and only once")
	}
	if err := s.Add("job", schedule.Every(time.Hour), nothing); err != nil {
		t.Error(err)
	}
}
