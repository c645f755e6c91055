package schedule

import "time"

// mostSkipped is the longest jump of local time that counts as a change to or from
// daylight saving time. A longer one is another change of the zone, and what it skips
// does not run. Vixie cron has the same bound.
const mostSkipped = 3 * time.Hour

// zoned is a cron expression in a zone with changes of local time. The expression itself
// is evaluated in UTC, on local times that are written as if they were UTC: "wall" below.
type zoned struct {
	zone *time.Location
	wall wallTimes
	wild bool // the second, minute or hour has a *: due whenever the local clock shows it
}

// Next returns the first due time after t.
func (z zoned) Next(t time.Time) time.Time {
	if z.wild {
		return z.nextShown(t)
	}
	return z.nextOnce(t)
}

// nextShown returns the first time after t at which the local clock shows a time of the
// expression. It proceeds from one change of the local clock to the next.
func (z zoned) nextShown(t time.Time) time.Time {
	for wall := z.wallOf(t); ; {
		next := z.wall.Next(wall)
		if next.IsZero() {
			return next
		}
		_, end := t.In(z.zone).ZoneBounds()
		if at := next.Add(-z.offset(t)); end.IsZero() || at.Before(end) {
			return at
		}
		t = end
		wall = z.wallOf(end).Add(-time.Second) // the change itself may be due
	}
}

// nextOnce returns the first due time after t of an expression that names its times: each of its
// local times is due once. A time that comes twice is due the first time, and one that is
// skipped is due right after the gap.
func (z zoned) nextOnce(t time.Time) time.Time {
	wall := z.wallOf(t)
	if before := t.Add(-mostSkipped); z.offset(before) != z.offset(t) {
		wall = z.wallOf(before) // around a change, the order of local times is not that of their due times
	}
	for {
		if wall = z.wall.Next(wall); wall.IsZero() {
			return wall
		}
		if at, exists := z.instant(wall); exists && at.After(t) {
			return at
		}
	}
}

// instant returns when the local clock shows wall for the first time, or the end of the
// gap that skips it.
func (z zoned) instant(wall time.Time) (at time.Time, exists bool) {
	guess := wall.Add(-z.offset(wall))
	begin, end := guess.In(z.zone).ZoneBounds()
	for _, change := range []time.Time{begin, end} { // the first time of two is before a change
		if change.IsZero() {
			continue
		}
		before := z.offset(change.Add(-time.Second))
		if at := wall.Add(-before); at.Before(change) && z.wallOf(at).Equal(wall) {
			return at, true
		}
		after := z.offset(change)
		if at := wall.Add(-after); !at.Before(change) && z.wallOf(at).Equal(wall) {
			return at, true
		}
		if gap := after - before; !wall.Before(change.Add(before)) && wall.Before(change.Add(after)) {
			return change, gap < mostSkipped
		}
	}
	return guess, true
}

// wallOf writes the local time at t as if it were UTC.
func (z zoned) wallOf(t time.Time) time.Time { return t.UTC().Add(z.offset(t)) }

func (z zoned) offset(t time.Time) time.Duration {
	_, seconds := t.In(z.zone).Zone()
	return time.Duration(seconds) * time.Second
}
