package schedule

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// farAhead is how far in the future a job may be decided. A job decided further ahead shows
// that a clock was wrong.
const farAhead = 24 * time.Hour

// aimFirst sets the fire to claim first, after the job was looked up.
func (s *Scheduler) aimFirst(ctx context.Context, j *job, seen State, now time.Time) {
	j.fire, j.mark, j.sure = j.after(now), time.Time{}, false
	s.takeStale(j)
	if !seen.Known {
		return
	}
	recent, isRecent := latest(j.plan, now.Add(-s.onTime()), now)
	if full, ahead := s.isAhead(ctx, j, seen); ahead {
		if isRecent && full.Known && !full.ran(recent) {
			j.fire = recent
		}
		return
	}
	switch j.missed {
	case None:
		if isRecent && recent.After(seen.Decided) {
			j.fire = recent // it is not late yet, and no process has claimed it
		}
	case One:
		if last, ok := latest(j.plan, seen.Decided, now); ok {
			j.fire = last
		}
	case All:
		j.catchUp(seen)
	}
	if seen.Plan == j.plan.String() && !j.busy(seen) { // with another plan it had other fires
		s.tellMissed(j, j.after(seen.Decided), slog.LevelInfo, "no process was up")
	}
}

// aim sets the fire of a job that fell behind: to the fire to claim now, or to the one to wait
// for. ready is when a free worker would have begun.
func (s *Scheduler) aim(ctx context.Context, j *job, ready time.Time) error {
	now := s.store.Now()
	ready = earlier(ready, now) // the clock may have stepped back since
	behind := !j.queued && due(j.plan.Next(j.fire), now)
	first, stale := j.fire, s.takeStale(j)
	if !j.queued && j.missed != All { // a queued fire runs however old it is
		j.fire = s.target(j, ready, now)
	}
	leavesOut := j.fire.After(first)
	if !stale && !leavesOut && (j.missed != All || !behind || j.sure) {
		return nil
	}
	state, err := s.read(ctx, j)
	switch {
	case err != nil:
		j.fire = first
		s.setStale(j)
		return err
	case j.busy(state) && (stale || j.missed == All):
		j.fire = first
		s.setStale(j)
		return errAtWork
	}
	_, ahead := s.isAhead(ctx, j, state)
	switch {
	case ahead:
	case j.missed == All && !j.queued:
		j.catchUp(state)
	case leavesOut && !j.busy(state):
		why := "this process fell behind"
		if ready.Before(now) {
			why = "no worker was free"
		}
		s.tellMissed(j, later(first, j.after(state.Decided)), slog.LevelWarn, why)
	}
	return nil
}

// target returns the fire to go on with if missed fires are left out: the latest one, or with
// None the next one if the latest is too old.
func (s *Scheduler) target(j *job, ready, now time.Time) time.Time {
	fire, isDue := latest(j.plan, j.fire.Add(-time.Millisecond), now)
	switch {
	case !isDue:
		return j.fire
	case j.missed == None && ready.Sub(fire) > s.onTime():
		return j.after(now)
	}
	return fire
}

// onTime returns how old a fire may be without being missed.
func (s *Scheduler) onTime() time.Duration { return missedAfter + s.jitter }

// catchUp sets the fire to the first one that is not decided, according to the document.
func (j *job) catchUp(seen State) {
	if seen.Known {
		j.fire, j.mark, j.sure = j.after(seen.Decided), seen.Decided, true
	}
}

// tellMissed reports that the fires from first up to the one before the job's next will not
// run, if there are any.
func (s *Scheduler) tellMissed(j *job, first time.Time, level slog.Level, why string) {
	if !first.Before(j.fire) {
		return
	}
	last, _ := latest(j.plan, first.Add(-time.Millisecond), j.fire.Add(-time.Millisecond))
	s.logger.Log(context.Background(), level, "schedule: fires were missed and will not run", "job", j.name, "first", first, "last", last, "why", why)
	s.event(Event{Kind: MissedFires, Job: j.name, First: first, Fire: last})
}

// isAhead reports whether the job is decided up to a time that the store's clock has not
// reached. Then that clock was wrong when a fire was claimed, and no fire before that time
// would run. If the time is far ahead, the next claim takes decided back, and full is the job
// with its past.
func (s *Scheduler) isAhead(ctx context.Context, j *job, seen State) (full State, ahead bool) {
	if seen.Decided.Sub(seen.Now) <= missedAfter {
		return State{}, false
	}
	full, err := s.Job(ctx, j.name) // by the clock as it is now
	by := full.Decided.Sub(full.Now)
	if err != nil || by <= missedAfter {
		return State{}, err != nil
	}
	far := by > farAhead
	s.mu.Lock()
	told := j.told.Equal(full.Decided)
	if j.told = full.Decided; far {
		j.ahead = full.Decided
	}
	s.mu.Unlock()
	if !told {
		s.logger.Warn("schedule: a job is decided up to a time in the future: the database's clock was wrong when that fire was claimed",
			"job", j.name, "decided", full.Decided, "now", full.Now, "taken back", far)
	}
	if !far {
		full = State{}
	}
	return full, true
}

// ran reports whether a run of the fire is known.
func (s State) ran(fire time.Time) bool {
	is := func(r Run) bool { return r.Fire.Equal(fire) }
	return slices.ContainsFunc(s.Runs, is) || slices.ContainsFunc(s.Past, is)
}
