package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/schedule"
)

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
		var wrong *schedule.CronError
		if assert.ErrorAs(t, err, &wrong, "%q", expression) {
			assert.Equal(t, want.offset, wrong.Offset, "%q: %v", expression, err)
			assert.Equal(t, expression, wrong.Expression)
			assert.ErrorContains(t, err, want.says)
		}
	}
}

func FuzzNoExpressionPanics(f *testing.F) {
	for _, e := range []string{"TZ=Foo", "CRON_TZ=UTC", "0 3 * * *", "@every 1s", "TZ=UTC TZ=x * * * *", "1-", "*/", ",", "@"} {
		f.Add(e)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, e string) {
		if next := schedule.Cron(e).Next(now); !next.IsZero() {
			assert.Greater(t, next, now, "%q", e)
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
		assert.Equal(t, want, schedule.Cron(expression).Next(from.In(time.FixedZone("a host's", 3600))), "%q", expression)
	}
}
