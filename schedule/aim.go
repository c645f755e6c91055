package schedule

import (
	"context"
	"slices"
	"time"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// farAhead is how far in the future a job may be decided. A job decided further ahead shows
// that a clock was wrong.
const farAhead = 24 * time.Hour

// aimFirst sets the due time to claim first, after the job was read.
func (s *Scheduler) aimFirst(ctx context.Context, j *job, seen jobs.State, now time.Time) {
	j.due, j.mark, j.sure = j.after(now), time.Time{}, false
	s.takeStale(j)
	if !seen.Known {
		return
	}
	if full, ahead := s.isAhead(ctx, j, seen); ahead {
		recent, isRecent := latest(j.plan, now.Add(-wrongBy), now)
		if isRecent && full.Known && !ran(full, recent) {
			j.due = recent
		}
		return
	}
	if seen.Plan != j.plan.String() { // due times that have passed were not those of this plan
		j.floor = now
	}
	s.catchUp(j, seen, now)
}

// aim sets the due time of a job whose own one may be wrong by now: to the one to claim, or to
// the one to wait for.
func (s *Scheduler) aim(ctx context.Context, j *job) error {
	now := s.store.Now()
	stale := s.takeStale(j)
	behind := due(j.after(j.due), now)
	switch {
	case stale:
	case !j.each:
		j.due = s.target(j, j.due.Add(-time.Millisecond), now)
		return nil
	case !behind:
		return nil
	case j.sure:
		j.due = s.target(j, j.mark, now)
		return nil
	}
	state, err := s.read(ctx, j)
	switch {
	case err != nil:
		s.setStale(j)
		return err
	case state.Paused: // Resume decides what has come by then
		s.setStale(j)
		j.due, j.mark, j.sure = j.after(now), time.Time{}, false
		return nil
	case j.busy(state):
		s.setStale(j)
		return errAtWork
	case !j.beside && !j.once && state.Busy != "": // a run has died, and is repeated first
		s.setStale(j)
		s.readAt(j, now.Add(time.Second))
		return errAtWork
	}
	if _, ahead := s.isAhead(ctx, j, state); !ahead {
		s.catchUp(j, state, now)
	}
	return nil
}

// catchUp sets the due time to the one to go on with, according to the document.
func (s *Scheduler) catchUp(j *job, seen jobs.State, now time.Time) {
	switch {
	case !seen.Known:
		return
	case seen.Decided.After(now.Add(wrongBy)): // this process's sample of the clock is old
		j.due, j.mark, j.sure = j.after(now), time.Time{}, false
		return
	}
	j.mark, j.sure = seen.Decided, true
	j.due = s.target(j, later(seen.Decided, j.floor), now)
}

// target returns the due time to go on with, if those up to one are decided. It is the latest
// that has come. With Each it is the first, or if that is too late, the latest of those that are
// too late: the claim of that one drops all of them.
func (s *Scheduler) target(j *job, decided, now time.Time) time.Time {
	if j.each && j.maxLate == 0 {
		return j.after(decided)
	}
	if j.each {
		now = now.Add(-s.allowed(j))
	}
	if last, come := latest(j.times(), decided, now); come {
		return last
	}
	return j.after(decided)
}

// allowed returns how late a due time may begin.
func (s *Scheduler) allowed(j *job) time.Duration { return j.maxLate + s.jitter }

// tooLate reports whether a run that begins by now begins too late.
func (s *Scheduler) tooLate(j *job, r Run) bool {
	allowed := s.allowed(j)
	if r.Due.UnixMilli() == j.asked.Load() {
		allowed += askedLate
	}
	return j.maxLate > 0 && r.Attempt == 1 && r.Began.Sub(r.Due) > allowed
}

// tellDropped reports the due times that the claim of a run has dropped: those after the last that was
// claimed before, and the run's own if it is too late. Those of a pause are not told.
func (s *Scheduler) tellDropped(j *job, won jobs.Claimed, r Run, late bool) {
	plan, hi, why := j.plan, r.Due.Add(-time.Millisecond), "later due times came before they could run"
	if late { // otherwise the run will do for a call of RunNow before it
		plan, hi, why = j.times(), r.Due, "they were later than MaxLate allows"
	}
	lo := later(won.Before, j.floor)
	if lo.IsZero() || late && !lo.Before(r.Due) { // RunNow was called under another plan
		lo = r.Due.Add(-time.Millisecond)
	}
	type part struct {
		plan   Plan
		lo, hi time.Time
	}
	parts := []part{{plan, lo, hi}}
	if won.Resumed.After(lo) { // Resume has decided a call of RunNow from before the pause, too
		parts = []part{{also{j.plan, won.Asked}, lo, won.Paused}, {plan, won.Resumed, hi}}
	}
	var first, last time.Time
	n := 0
	for _, p := range parts {
		end, some := latest(p.plan, p.lo, p.hi)
		if !p.hi.After(p.lo) || !some {
			continue
		}
		if n == 0 {
			first = p.plan.Next(p.lo)
		}
		last, n = end, n+count(p.plan, p.lo, p.hi)
	}
	if n == 0 {
		return
	}
	s.logger.Warn("schedule: due times were dropped", "job", j.name, "count", n, "first", first, "last", last, "why", why)
	s.event(Event{Kind: Dropped, Job: j.name, First: first, Due: last, Count: n})
}

// isAhead reports whether the job is decided up to a time that the store's clock has not
// reached. Then that clock was wrong when a due time was claimed, and no due time before that
// would run. If the time is far ahead, the next claim takes decided back, and full is the job
// with its past.
func (s *Scheduler) isAhead(ctx context.Context, j *job, seen jobs.State) (full jobs.State, ahead bool) {
	if seen.Decided.Sub(seen.Now) <= wrongBy {
		return jobs.State{}, false
	}
	all, err := s.store.Read(ctx, []string{j.name}, jobs.WithPast) // by the clock as it is now
	if err != nil {
		return jobs.State{}, true
	}
	full = all[0]
	by := full.Decided.Sub(full.Now)
	if by <= wrongBy {
		return jobs.State{}, false
	}
	far := by > farAhead
	s.mu.Lock()
	told := j.told.Equal(full.Decided)
	if j.told = full.Decided; far {
		j.ahead = full.Decided
	}
	s.mu.Unlock()
	if !told {
		s.logger.Warn("schedule: a job is decided up to a time in the future: the database's clock was wrong when that due time was claimed",
			"job", j.name, "decided", full.Decided, "now", full.Now, "taken back", far)
	}
	if !far {
		full = jobs.State{}
	}
	return full, true
}

// ran reports whether a run of the due time is known.
func ran(s jobs.State, at time.Time) bool {
	is := func(r jobs.Run) bool { return r.Due.Equal(at) }
	return slices.ContainsFunc(s.Runs, is) || slices.ContainsFunc(s.Past, is)
}
