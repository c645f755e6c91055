package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

const (
	// farAhead is how far in the future a job may be decided. A job decided further ahead shows
	// that a clock was wrong.
	farAhead = 24 * time.Hour

	// mostPlans bounds the plans of a document: then a process that starts with another one waits
	// until the due times of the older ones are decided.
	mostPlans = 16

	// Why due times are dropped.
	overtaken = "later due times came before they could run"
	tooOld    = "they were later than MaxLate allows"
)

// A pick is the due time to claim next, or to wait for, and what its claim drops.
type pick struct {
	due     time.Time
	first   time.Time // the first due time that is not decided: due, or one that it drops
	verdict Outcome
	drops   []jobs.Drop
}

// pick picks a due time, if those up to mark are decided. It is the latest that has come; with Each
// the first, or if that is too late, the latest of those that are too late.
func (j *job) pick(mark, now time.Time, jitter time.Duration) pick {
	resumed := j.plans.resumed()
	lo := later(mark, resumed) // what a pause overtook does not run
	allowed := j.maxLate + jitter
	p := pick{due: j.after(lo), first: j.after(mark)}
	d, come := jobs.Drop{Why: overtaken}, now
	if j.each {
		come = now.Add(-allowed)
	}
	if last, is := latest(j.times(), lo, come); is && (!j.each || j.maxLate > 0) {
		if p.due = last; j.each { // also if this one is not too late by a moment: those before it are
			d.Why = tooOld
		}
	}
	if !due(p.due, now) {
		return p
	}
	plain, hi := Plan(j.plans), p.due.Add(-time.Millisecond) // a call of RunNow runs with the due time after it
	if j.tooLate(p.due, now, jitter) {
		p.verdict, d.Why, plain, hi = TooLate, tooOld, j.times(), p.due
	}
	addDue(&d, j.times(), mark, earlier(resumed, hi))
	addDue(&d, plain, lo, hi)
	if d.Count > 0 && j.ahead.IsZero() {
		p.drops = []jobs.Drop{d}
	}
	return p
}

// addDue adds the due times of a plan that are after lo and not after hi.
func addDue(d *jobs.Drop, p Plan, lo, hi time.Time) {
	last, some := latest(p, lo, hi)
	if !hi.After(lo) || !some {
		return
	}
	if d.Count == 0 {
		d.First = p.Next(lo)
	}
	d.Last, d.Count = last, d.Count+count(p, lo, hi)
}

// tooLate reports whether a due time is too late to begin now.
func (j *job) tooLate(at, now time.Time, jitter time.Duration) bool {
	allowed := j.maxLate + jitter
	if at.UnixMilli() == j.asked.Load() {
		allowed += askedLate
	}
	return j.maxLate > 0 && now.Sub(at) > allowed
}

// learn takes from a job's document what the next claim has to know, for the goroutine that has the job's
// item. It makes the document if there is none, and writes this process's plan into it, once.
func (s *Scheduler) learn(ctx context.Context, j *job, seen jobs.State) (jobs.State, error) {
	seen, err := s.adopt(ctx, j, seen)
	if err != nil {
		return seen, err
	}
	plans, err := readPlans(seen.Plans, j.plan, seen.Decided)
	if err != nil {
		return seen, fmt.Errorf("schedule: job %q: %w", j.name, err)
	}
	j.edition, j.plans = seen.Edition, plans
	if !seen.Asked.IsZero() {
		j.asked.Store(seen.Asked.UnixMilli())
	}
	j.mark, j.sure, j.ahead = seen.Decided, true, time.Time{}
	return seen, s.checkAhead(ctx, j, seen)
}

// adopt makes a job's document follow this process's plan, if it has not done so before.
func (s *Scheduler) adopt(ctx context.Context, j *job, seen jobs.State) (jobs.State, error) {
	s.mu.Lock()
	proposed, removed := j.proposed, j.removed
	s.mu.Unlock()
	own, now := j.plan.String(), s.store.Now()
	switch {
	case removed:
		return seen, errRemoved
	case seen.Foreign != nil:
		return seen, seen.Foreign
	case !seen.Known:
		var err error
		if seen, err = s.store.Register(ctx, j.name, own, now); err != nil {
			return seen, wrap("register", j.name, err)
		}
	case proposed:
		return seen, nil
	}
	last := seen.Plans[len(seen.Plans)-1]
	if last.Plan != own {
		plans := slices.Clone(seen.Plans)
		for len(plans) > 1 && len(seen.Runs) == 0 && !plans[1].From.After(seen.Decided) { // none whose claim may be returned
			plans = plans[1:]
		}
		if len(plans) >= mostPlans {
			return seen, nil
		}
		from := later(now, last.From)
		if !seen.Decided.After(now.Add(wrongBy)) { // otherwise a clock was wrong
			from = later(from, seen.Decided)
		}
		plans = append(plans, jobs.Span{Plan: own, From: from})
		if err := s.store.Plan(ctx, seen, plans); err != nil {
			return seen, wrap("change the plan of", j.name, err)
		}
		s.logger.Info("schedule: a job has a new plan", "job", j.name, "before", last.Plan, "now", own)
		seen.Plans, seen.Edition = plans, seen.Edition+1
	}
	s.mu.Lock()
	j.proposed, j.changed = true, later(j.changed, seen.Changed)
	s.mu.Unlock()
	return seen, nil
}

// checkAhead notices a job that is decided up to a time that the store's clock has not reached. Then that
// clock was wrong when a due time was claimed, and no due time before that would run. If the time is far
// ahead, the next claim takes decided back.
func (s *Scheduler) checkAhead(ctx context.Context, j *job, seen jobs.State) error {
	if seen.Decided.Sub(seen.Now) <= wrongBy || seen.Now.IsZero() {
		return nil
	}
	all, err := s.store.Read(ctx, []string{j.name}, jobs.WithPast) // by the clock as it is now
	if err != nil {
		return wrap("read", j.name, err)
	}
	full := all[0]
	by := full.Decided.Sub(full.Now)
	if by <= wrongBy {
		return nil
	}
	far := by > farAhead
	if !j.told.Equal(full.Decided) {
		s.logger.Warn("schedule: a job is decided up to a time in the future: the database's clock was wrong when that due time was claimed",
			"job", j.name, "decided", full.Decided, "now", full.Now, "taken back", far)
	}
	if j.told = full.Decided; !far {
		return nil
	}
	j.ahead, j.mark = full.Decided, full.Now
	if recent, is := latest(j.plans, full.Now.Add(-wrongBy), full.Now); is && !ran(full, recent) {
		j.mark = recent.Add(-time.Millisecond)
	}
	return nil
}

// ran reports whether a run of the due time is known.
func ran(s jobs.State, at time.Time) bool {
	is := func(r jobs.Run) bool { return r.Due.Equal(at) }
	return slices.ContainsFunc(s.Runs, is) || slices.ContainsFunc(s.Past, is)
}

var errRemoved = errors.New("schedule: the job was removed")
