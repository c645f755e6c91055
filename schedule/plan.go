package schedule

import (
	"errors"
	"fmt"
	"time"
)

// A Plan says when a job is due. A plan must be the same function in every process that has the
// job, because the processes know a due time by nothing but the time. Times are in UTC and whole
// milliseconds. Every, Cron and At make plans.
type Plan interface {
	// Next returns the first due time after t, or the zero time if there is none.
	Next(t time.Time) time.Time
	// String is shown with the job.
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

// due reports whether the due time exists and is not in the future.
func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// mostCounted bounds how many due times of a plan are counted one by one: a cron of seconds has that
// many in twelve days, and to count them takes half a second.
const mostCounted = 1_000_000

// count returns how many due times are after t and not after last; mostCounted: so many or more.
func count(p Plan, t, last time.Time) (n int) {
	switch p := p.(type) {
	case every:
		period := time.Duration(p)
		return max(0, int((last.Sub(p.Next(t))+period)/period))
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
