package schedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Cron is a plan given by a cron expression, as robfig/cron reads it. The expression has five
// fields (minute, hour, day, month, day of week), or six with seconds first. Or it is one of
// @hourly, @daily, @weekly, @monthly, @yearly and @every 90s; the last is the same as Every.
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
// at 3:00, if 2:30 is skipped. (Times that fall together so are one fire.) A change of
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

type cronPlan struct {
	text string
	next cron.Schedule
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

const standard = cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor

// places are the fields of an expression, in order, and how each is parsed alone.
var places = []struct {
	name   string
	option cron.ParseOption
}{
	{"second", cron.Second},
	{"minute", cron.Minute},
	{"hour", cron.Hour},
	{"day of month", cron.Dom},
	{"month", cron.Month},
	{"day of week", cron.Dow},
}

func parseCron(text string) Plan {
	c := &cronPlan{text: text}
	wrong := func(offset int, field string, format string, args ...any) Plan {
		c.err = &CronError{Expression: text, Offset: offset, Field: field, Err: fmt.Errorf(format, args...)}
		return c
	}
	fields := fieldsOf(text)
	zone := time.UTC
	if len(fields) > 0 {
		if _, name, is := strings.Cut(fields[0].text, "TZ="); is && (fields[0].text == "TZ="+name || fields[0].text == "CRON_TZ="+name) {
			loaded, err := time.LoadLocation(name)
			if err != nil || name == "" || name == "Local" { // Local differs from host to host
				return wrong(fields[0].at, fields[0].text, "no such time zone: %q", name)
			}
			zone, fields = loaded, fields[1:]
		}
	}
	if len(fields) == 0 {
		// robfig/cron panics on a time zone with nothing after it.
		return wrong(len(text), "", "there is no expression")
	}
	if strings.HasPrefix(fields[0].text, "@") {
		return c.describe(zone, fields, wrong)
	}
	options, at := standard, places[1:]
	switch len(fields) {
	case 5:
	case 6:
		options, at = standard|cron.Second, places
	default:
		return wrong(fields[len(fields)-1].at, fields[len(fields)-1].text, "%d fields: must be 5, or 6 with seconds", len(fields))
	}
	for i, f := range fields {
		if strings.Contains(f.text, "=") { // robfig/cron panics on TZ=Foo at the end
			return wrong(f.at, f.text, "%s: not a value of this field", at[i].name)
		}
		if _, err := cron.NewParser(at[i].option).Parse(f.text); err != nil {
			return wrong(f.at, f.text, "%s: %w", at[i].name, err)
		}
	}
	return c.parse(options, zone, fields, wrong)
}

// describe reads a descriptor, such as "@daily".
func (c *cronPlan) describe(zone *time.Location, fields []field, wrong func(int, string, string, ...any) Plan) Plan {
	if fields[0].text == "@every" && len(fields) == 2 {
		d, err := time.ParseDuration(fields[1].text)
		if err == nil {
			err = every(d).check()
		}
		if err != nil {
			return wrong(fields[1].at, fields[1].text, "%w", err)
		}
		return every(d) // robfig/cron counts from the time of the call: each process would have other fires
	}
	if len(fields) > 1 {
		return wrong(fields[1].at, fields[1].text, "nothing may follow %s", fields[0].text)
	}
	return c.parse(standard, zone, fields, wrong)
}

func (c *cronPlan) parse(options cron.ParseOption, zone *time.Location, fields []field, wrong func(int, string, string, ...any) Plan) Plan {
	words := make([]string, len(fields))
	for i, f := range fields {
		words[i] = f.text
	}
	next, err := cron.NewParser(options).Parse("CRON_TZ=UTC " + strings.Join(words, " "))
	if err != nil {
		return wrong(fields[0].at, fields[0].text, "%w", err)
	}
	if next.Next(time.Unix(0, 0).UTC()).IsZero() {
		return wrong(fields[0].at, "", "it is never due")
	}
	if c.next = next; zone != time.UTC {
		c.next = zoned{zone: zone, wall: next, wild: isWild(words)}
	}
	return c
}

// isWild reports whether an expression has a * in its second, minute or hour.
func isWild(words []string) bool {
	if len(words) == 1 {
		return words[0] == "@hourly" // the other descriptors name their time
	}
	return strings.ContainsAny(strings.Join(words[:len(words)-3], " "), "*?")
}

type field struct {
	text string
	at   int
}

// fieldsOf is strings.Fields, and also says where each field begins.
func fieldsOf(text string) []field {
	var all []field
	for rest := text; ; {
		begin := len(rest) - len(strings.TrimLeft(rest, " \t\r\n"))
		if rest = rest[begin:]; rest == "" {
			return all
		}
		end := strings.IndexAny(rest, " \t\r\n")
		if end < 0 {
			end = len(rest)
		}
		all = append(all, field{rest[:end], len(text) - len(rest)})
		rest = rest[end:]
	}
}
