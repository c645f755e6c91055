package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// A Plan says when a job is due. Times are in UTC and whole milliseconds. Every, Cron and At make plans.
//
// A job has one plan at a time in all processes: its text stands in the database, and a process that starts
// with another one replaces it there. A plan of another type, whose text this package cannot read, is
// followed only by the processes that have it themselves; for others it is an ErrPlan.
type Plan interface {
	// Next returns the first due time after t, or the zero time if there is none.
	Next(t time.Time) time.Time
	// String returns the plan as text, which is all that differs from another plan.
	String() string
}

// A checker is a plan that may have been made from a bad argument. Add checks it.
type checker interface{ check() error }

// Every is due at all multiples of period since 1970 in UTC: Every(time.Hour) on the
// hour, Every(10 s) at :00, :10, :20 of each minute. The period is a whole number of
// milliseconds, at least 10.
func Every(period time.Duration) Plan { return every(period) }

const leastPeriod = 10 * time.Millisecond

type every time.Duration

func (e every) Next(t time.Time) time.Time {
	p := int64(time.Duration(e) / time.Millisecond)
	if p <= 0 {
		return time.Time{}
	}
	ms := t.UnixMilli()
	n := ms / p
	if ms < 0 && ms%p != 0 {
		n--
	}
	return time.UnixMilli((n + 1) * p).UTC()
}

func (e every) String() string { return "every " + time.Duration(e).String() }

func (e every) check() error {
	switch d := time.Duration(e); {
	case d <= 0:
		return fmt.Errorf("schedule: Every(%v): the period must be positive", d)
	case d < leastPeriod:
		return fmt.Errorf("schedule: Every(%v): the period must be at least %v", d, leastPeriod)
	case d%time.Millisecond != 0:
		return fmt.Errorf("schedule: Every(%v): the period must be a whole number of milliseconds", d)
	}
	return nil
}

// At is due once, at t. A process that has the job must have been up before then, once: a job
// that is new when its time has passed does not run.
func At(t time.Time) Plan { return at{t.UTC().Truncate(time.Millisecond)} }

type at struct{ time time.Time }

func (a at) Next(t time.Time) time.Time {
	if a.time.After(t) {
		return a.time
	}
	return time.Time{}
}

func (a at) String() string { return "at " + a.time.Format("2006-01-02T15:04:05.999Z07:00") }

func (a at) check() error {
	if a.time.Year() < 1970 || a.time.Year() >= never.Year() {
		return fmt.Errorf("schedule: At(%v): must be between 1970 and %d", a.time, never.Year())
	}
	return nil
}

// also is a plan with one more due time.
type also struct {
	Plan
	asked time.Time
}

func (a also) Next(t time.Time) time.Time {
	n := a.Plan.Next(t)
	if a.asked.After(t) && (n.IsZero() || a.asked.Before(n)) {
		return a.asked
	}
	return n
}

// A span is a plan and the time after which it holds; nil: a pause.
type span struct {
	Plan
	from time.Time
}

// spans are the plans of a job, each of which holds until the next one does. Together they are a plan.
type spans []span

// each calls f with each plan that has due times after t, and the time from which and up to which it holds.
func (s spans) each(t time.Time, f func(p Plan, lo, hi time.Time) (stop bool)) {
	for i, p := range s {
		lo, hi := later(t, p.from), never
		if i+1 < len(s) {
			hi = s[i+1].from
		}
		if p.Plan != nil && hi.After(lo) && f(p.Plan, lo, hi) {
			return
		}
	}
}

func (s spans) Next(t time.Time) (next time.Time) {
	s.each(t, func(p Plan, lo, hi time.Time) bool {
		n := p.Next(lo)
		if !n.After(lo) || n.After(hi) {
			return false
		}
		next = n
		return true
	})
	return next
}

func (s spans) String() string { return s[len(s)-1].String() }

// resumed returns when the last pause ended.
func (s spans) resumed() (at time.Time) {
	for i, p := range s[1:] {
		if s[i].Plan == nil {
			at = p.from
		}
	}
	return at
}

// readPlans reads what a document says of a job's plans. One whose due times are all decided need not be readable.
func readPlans(all []jobs.Span, own Plan, decided time.Time) (spans, error) {
	read := make(spans, len(all))
	for i, p := range all {
		if read[i].from = p.From; p.Plan == "" {
			continue
		}
		var err error
		if read[i].Plan, err = readPlan(p.Plan, own); err != nil {
			if i+1 == len(all) || all[i+1].From.After(decided) {
				return nil, err
			}
			read[i].Plan = at{} // its due times are all decided
		}
	}
	return read, nil
}

// readPlan returns the plan that a text stands for: own, if that is its text.
func readPlan(text string, own Plan) (p Plan, err error) {
	if own != nil && own.String() == text {
		return own, nil
	}
	kind, rest, _ := strings.Cut(text, " ")
	switch kind {
	case "every":
		var d time.Duration
		d, err = time.ParseDuration(rest)
		p = Every(d)
	case "cron":
		p = Cron(rest)
	case "at":
		var t time.Time
		t, err = time.Parse(time.RFC3339Nano, rest)
		p = At(t)
	default:
		return nil, fmt.Errorf("%w: %q", ErrPlan, text)
	}
	if err == nil {
		err = checkPlan(p)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrPlan, text, err)
	}
	return p, nil
}

var errNoPlan = errors.New("schedule: Add: the plan is nil")

func checkPlan(p Plan) error {
	if p == nil {
		return errNoPlan
	}
	if c, ok := p.(checker); ok {
		return c.check()
	}
	return nil
}

// latest returns the last due time that is after t and not after now.
func latest(p Plan, t, now time.Time) (time.Time, bool) {
	if !due(p.Next(t), now) {
		return time.Time{}, false
	}
	for before := now; before.Sub(t) > time.Millisecond; { // Next(t) is due, Next(before) is not
		if half := t.Add(before.Sub(t) / 2); due(p.Next(half), now) {
			t = half
		} else {
			before = half
		}
	}
	return p.Next(t), true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// due reports whether the due time exists and is not in the future.
func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// mostCounted bounds how many due times of a plan are counted one by one: a cron of seconds has that
// many in twelve days, and to count them takes half a second.
const mostCounted = 1_000_000

// count returns how many due times are after t and not after last; mostCounted: so many or more.
func count(p Plan, t, last time.Time) (n int) {
	if !last.After(t) {
		return 0
	}
	switch p := p.(type) {
	case every:
		period := time.Duration(p)
		return max(0, int((last.Sub(p.Next(t))+period)/period))
	case spans:
		p.each(t, func(p Plan, lo, hi time.Time) bool {
			n += count(p, lo, earlier(hi, last))
			return n >= mostCounted
		})
		return n
	case also:
		n = count(p.Plan, t, last)
		if p.asked.After(t) && due(p.asked, last) && !p.Plan.Next(p.asked.Add(-time.Millisecond)).Equal(p.asked) {
			n++
		}
		return n
	}
	for at := p.Next(t); due(at, last) && n < mostCounted; at = p.Next(at) {
		n++
	}
	return n
}
