package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
)

func TestABadExpressionIsRefusedWithItsPosition(t *testing.T) {
	for expression, want := range map[string]struct {
		offset int
		says   string
	}{
		"":                      {0, "there is no expression"},
		"   ":                   {3, "there is no expression"},
		"0 25 * * *":            {2, `at position 3 ("25"): hour: 25 is not between 0 and 23`},
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
		"1,,2 * * * *":          {0, `"" is not a number`},
		"*-5 * * * *":           {0, `"*" is not a number`},
		"+5 * * * *":            {0, `"+5" is not a number`},
		"* * * janfeb *":        {6, `"janfeb" is not a number`},
		"* * * anf *":           {6, `"anf" is not a number`},
		"* * * * 7":             {8, "7 is not between 0 and 6"},
		"*/99999999999 * * * *": {0, "is not a number"},
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

// The rules are those of vixie cron, as its manual has them: a job at a named time runs
// once, and one at an interval keeps it.
func TestCronFollowsVixieAtAChangeOfLocalTime(t *testing.T) {
	utc := func(month time.Month, day, hour, minute int) time.Time {
		return time.Date(2025, month, day, hour, minute, 0, 0, time.UTC)
	}
	// Berlin skips 2:00 to 3:00 on March 30 and repeats it on October 26; both at 1:00 UTC.
	march, october := utc(time.March, 29, 12, 0), utc(time.October, 25, 12, 0)
	for name, try := range map[string]struct {
		expression string
		from       time.Time
		want       []time.Time
	}{
		"a skipped time is due right after the gap": {"30 2 * * *", march,
			[]time.Time{utc(time.March, 30, 1, 0), utc(time.March, 31, 0, 30)}},
		"several skipped times are one fire": {"0,15,45 2 * * *", march,
			[]time.Time{utc(time.March, 30, 1, 0), utc(time.March, 31, 0, 0)}},
		"a skipped time and the end of the gap are one fire": {"0 2,3 * * *", march,
			[]time.Time{utc(time.March, 30, 1, 0), utc(time.March, 31, 0, 0), utc(time.March, 31, 1, 0)}},
		"a repeated time is due the first time": {"30 2 * * *", october,
			[]time.Time{utc(time.October, 26, 0, 30), utc(time.October, 27, 1, 30)}},
		"times around the repeated hour are due once": {"30 1-3 * * *", october,
			[]time.Time{utc(time.October, 25, 23, 30), utc(time.October, 26, 0, 30), utc(time.October, 26, 2, 30), utc(time.October, 27, 0, 30)}},
		"an interval goes on through the gap": {"*/30 * * * *", utc(time.March, 30, 0, 0),
			[]time.Time{utc(time.March, 30, 0, 30), utc(time.March, 30, 1, 0), utc(time.March, 30, 1, 30)}},
		"an interval goes on through the repeated hour": {"*/30 * * * *", utc(time.October, 26, 0, 0),
			[]time.Time{utc(time.October, 26, 0, 30), utc(time.October, 26, 1, 0), utc(time.October, 26, 1, 30), utc(time.October, 26, 2, 0)}},
		"every hour is every hour": {"@hourly", utc(time.October, 26, 0, 0),
			[]time.Time{utc(time.October, 26, 1, 0), utc(time.October, 26, 2, 0), utc(time.October, 26, 3, 0)}},
		"a * in the minute follows the clock in the gap": {"*/20 2 * * *", march,
			[]time.Time{utc(time.March, 31, 0, 0), utc(time.March, 31, 0, 20)}},
		"and in the repeated hour": {"*/20 2 * * *", october,
			[]time.Time{utc(time.October, 26, 0, 0), utc(time.October, 26, 0, 20), utc(time.October, 26, 0, 40), utc(time.October, 26, 1, 0)}},
		"a * in the hour follows the clock in the gap": {"30 */2 * * *", utc(time.March, 29, 23, 0),
			[]time.Time{utc(time.March, 29, 23, 30), utc(time.March, 30, 2, 30)}},
		"a named time in seconds too": {"15 30 2 * * *", march,
			[]time.Time{utc(time.March, 30, 1, 0), utc(time.March, 31, 0, 30).Add(15 * time.Second)}},
		"another time of the day is due as ever": {"0 12 * * *", march,
			[]time.Time{utc(time.March, 30, 10, 0), utc(time.March, 31, 10, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := schedule.Cron("CRON_TZ=Europe/Berlin " + try.expression)
			at := try.from
			for i, want := range try.want {
				at = plan.Next(at)
				assert.Equal(t, want, at, "fire %d", i)
			}
		})
	}
}

func TestCronInZonesWithOtherChanges(t *testing.T) {
	for name, try := range map[string]struct{ expression, from, want string }{
		"half an hour is skipped":                    {"CRON_TZ=Australia/Lord_Howe 15 2 * * *", "2025-10-04T12:00:00Z", "2025-10-04T15:30:00Z"},
		"an interval through half an hour":           {"CRON_TZ=Australia/Lord_Howe 0 */3 * * *", "2025-10-04T14:30:00Z", "2025-10-04T16:00:00Z"},
		"midnight is skipped":                        {"CRON_TZ=America/Sao_Paulo @daily", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z"},
		"a whole day is skipped, and not made up":    {"CRON_TZ=Pacific/Apia 0 3 * * *", "2011-12-29T20:00:00Z", "2011-12-30T13:00:00Z"},
		"a zone without changes":                     {"CRON_TZ=Asia/Kolkata 30 2 * * *", "2025-03-29T12:00:00Z", "2025-03-29T21:00:00Z"},
		"a zone that had changes once":               {"CRON_TZ=Asia/Tokyo 30 2 * * *", "2025-03-29T12:00:00Z", "2025-03-29T17:30:00Z"},
		"the change of many years from now":          {"CRON_TZ=Europe/Berlin 30 2 31 3 0", "2080-03-30T12:00:00Z", "2080-03-31T01:00:00Z"},
		"the first of a time that comes twice, west": {"CRON_TZ=America/New_York 30 1 * * *", "2025-11-01T12:00:00Z", "2025-11-02T05:30:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			from, err := time.Parse(time.RFC3339, try.from)
			require.NoError(t, err)
			assert.Equal(t, try.want, schedule.Cron(try.expression).Next(from).Format(time.RFC3339))
		})
	}
}

// Each fire is after the one before, from wherever the plan is asked.
func TestCronNextIsTheSameFromEveryMomentBeforeIt(t *testing.T) {
	for _, expression := range []string{"30 2 * * *", "*/20 2 * * *", "0 */2 * * *", "0,30 0-23 * * *", "@daily", "7 3 * * 0"} {
		for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"} {
			plan := schedule.Cron("CRON_TZ=" + zone + " " + expression)
			begin := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			next := plan.Next(begin)
			for at := begin; at.Before(begin.AddDate(1, 0, 0)); at = at.Add(25 * time.Minute) {
				for !at.Before(next) {
					last := next
					next = plan.Next(last)
					require.True(t, next.After(last), "%s in %s", expression, zone)
				}
				if found := plan.Next(at); found != next { // require is a hundred times as slow
					require.Equal(t, next, found, "%s in %s, asked at %v", expression, zone, at)
				}
			}
		}
	}
}
