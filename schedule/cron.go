package schedule

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Cron is a plan given by a cron expression. The expression has five fields (minute, hour, day,
// month, day of week), or six with seconds first. Or it is one of @hourly, @daily (@midnight),
// @weekly, @monthly, @yearly (@annually) and @every 90s; the last is the same as Every.
//
// A field is a list of values (5), ranges (1-5), steps (*/10, 1-30/2; 5/10 is 5-59/10), or *
// (also written ?), which is every value. Months and days of the week may be named (jan, MON);
// Sunday is 0. If both days are named, a day that matches either of them is meant, as in vixie
// cron.
//
// Times are UTC, not the host's zone, which may differ from host to host. Another zone
// is named in front: "CRON_TZ=Europe/Berlin 0 3 * * *". All hosts then need the same
// time zone database.
//
// When such a zone changes to or from daylight saving time, Cron follows vixie cron. A
// job with a * in its minute or hour (or second) is due whenever the local clock shows
// such a time: twice in the hour that is repeated, not in the hour that is skipped. So
// "*/10 * * * *" keeps its ten minutes. Any other job names its times, and each of them
// is due once: "30 2 * * *" the first time if 2:30 comes twice, and right after the gap,
// at 3:00, if 2:30 is skipped. (Times that fall together so are one due time.) A change of
// three hours or more skips the times in its gap.
//
// For a wrong expression Add returns a *CronError.
func Cron(expression string) Plan { return parseCron(expression) }

// A CronError says what is wrong with a cron expression, and where.
type CronError struct {
	Expression string
	Offset     int    // where the fault is, in bytes; len(Expression) if something is missing
	Field      string // the field at Offset
	Err        error
}

func (e *CronError) Error() string {
	at := fmt.Sprintf("at position %d", e.Offset+1)
	if e.Field != "" {
		at += fmt.Sprintf(" (%q)", e.Field)
	}
	return fmt.Sprintf("schedule: Cron(%q): %s: %v", e.Expression, at, e.Err)
}

func (e *CronError) Unwrap() error { return e.Err }

// A cronPlan is an expression and its zone.
type cronPlan struct {
	text string
	next interface{ Next(t time.Time) time.Time }
	err  error
}

func (c *cronPlan) String() string { return "cron " + c.text }
func (c *cronPlan) check() error   { return c.err }

func (c *cronPlan) Next(t time.Time) time.Time {
	if c.err != nil {
		return time.Time{}
	}
	n := c.next.Next(t.UTC())
	if n.IsZero() {
		return n
	}
	return n.UTC()
}

func parseCron(text string) Plan {
	c := &cronPlan{text: text}
	wrong := func(offset int, field string, format string, args ...any) Plan {
		c.err = &CronError{Expression: text, Offset: offset, Field: field, Err: fmt.Errorf(format, args...)}
		return c
	}
	words := wordsOf(text)
	zone := time.UTC
	if len(words) > 0 {
		if before, name, is := strings.Cut(words[0].text, "TZ="); is && (before == "" || before == "CRON_") {
			loaded, err := time.LoadLocation(name)
			if err != nil || name == "" || name == "Local" { // Local differs from host to host
				return wrong(words[0].at, words[0].text, "no such time zone: %q", name)
			}
			zone, words = loaded, words[1:]
		}
	}
	if len(words) == 0 {
		return wrong(len(text), "", "there is no expression")
	}
	if first := words[0]; strings.HasPrefix(first.text, "@") {
		return c.describe(zone, words, wrong)
	}
	if n := len(words); n != 5 && n != 6 {
		return wrong(words[n-1].at, words[n-1].text, "%d fields: must be 5, or 6 with seconds", n)
	}
	w := wallTimes{1} // at second 0
	for i, word := range words {
		place := len(w) - len(words) + i
		values, err := places[place].parse(word.text)
		if err != nil {
			return wrong(word.at, word.text, "%s: %w", places[place].name, err)
		}
		w[place] = values
	}
	return c.in(zone, w, words[0].at, wrong)
}

// The descriptors, and the expressions that they stand for.
var descriptors = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// describe reads a descriptor, such as "@daily".
func (c *cronPlan) describe(zone *time.Location, words []word, wrong func(int, string, string, ...any) Plan) Plan {
	first := words[0]
	if first.text == "@every" && len(words) == 2 {
		d, err := time.ParseDuration(words[1].text)
		if err == nil {
			err = every(d).check()
		}
		if err != nil {
			return wrong(words[1].at, words[1].text, "%w", err)
		}
		return every(d)
	}
	if len(words) > 1 {
		return wrong(words[1].at, words[1].text, "nothing may follow %s", first.text)
	}
	expression, known := descriptors[first.text]
	if !known {
		return wrong(first.at, first.text, "no such descriptor")
	}
	w := wallTimes{1}
	for i, text := range strings.Fields(expression) {
		w[i+1], _ = places[i+1].parse(text)
	}
	return c.in(zone, w, first.at, wrong)
}

// in makes the plan of local times in a zone.
func (c *cronPlan) in(zone *time.Location, w wallTimes, at int, wrong func(int, string, string, ...any) Plan) Plan {
	if w.Next(time.Unix(0, 0).UTC()).IsZero() {
		return wrong(at, "", "it is never due")
	}
	if c.next = w; zone != time.UTC {
		c.next = zoned{zone: zone, wall: w, wild: (w[second]|w[minute]|w[hour])&wild != 0}
	}
	return c
}

// A word is one of an expression, and where it begins.
type word struct {
	text string
	at   int
}

// wordsOf is strings.Fields, and also says where each word begins.
func wordsOf(text string) []word {
	var all []word
	for rest := text; ; {
		begin := len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsSpace))
		if rest = rest[begin:]; rest == "" {
			return all
		}
		end := strings.IndexFunc(rest, unicode.IsSpace)
		if end < 0 {
			end = len(rest)
		}
		all = append(all, word{rest[:end], len(text) - len(rest)})
		rest = rest[end:]
	}
}
