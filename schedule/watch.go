package schedule

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

// reread reads the documents of jobs, with one command, and goes on with what they show.
func (s *Scheduler) reread(ctx context.Context, which []*job) {
	states, err := s.store.Read(ctx, names(which), jobs.WithoutPast)
	if err != nil && !errors.Is(err, store.ErrForeign) || len(states) != len(which) {
		if ctx.Err() == nil {
			s.logger.Warn("schedule: could not read jobs; trying again later", "jobs", len(which), "error", err)
			for _, j := range which {
				s.readAt(j, s.store.Now().Add(often))
			}
		}
		return
	}
	if err != nil {
		s.logForeign(err)
	}
	for i, j := range which {
		if states[i].Foreign != nil {
			s.event(Event{Kind: Faulted, Job: j.name, Err: states[i].Foreign})
			continue
		}
		news := s.watch(j, states[i])
		if s.take(j) {
			_ = s.aim(ctx, j, states[i])
		} else if news { // a claim is under way: the job is read before the next one
			s.setStale(j)
		}
	}
}

func (s *Scheduler) logForeign(err error) {
	s.logger.Error("schedule: a job will not run until its document is mended, or forgotten with mongolock jobs forget", "error", err)
}

// aim chooses the due time to claim next by the job's document, and puts the job back in the queue. The caller has
// the job's item. After an error it tries later.
func (s *Scheduler) aim(ctx context.Context, j *job, seen jobs.State) error {
	seen, err := s.learn(ctx, j, seen)
	if err != nil {
		s.tryLater(ctx, j, err)
		return err
	}
	j.pause = nil
	now := s.store.Now()
	if j.due = j.pick(j.mark, now, s.jitter).due; due(j.due, now) && (seen.Paused || j.busy(seen)) {
		j.due = j.after(now)
	}
	s.await(j)
	return nil
}

// watch has the runs repeated that are over, and reads the job again when one that is under way may have run
// out. One of another process that lasts is read each ten seconds: that may be told to stop, and leave it. It
// reports whether the job was changed.
func (s *Scheduler) watch(j *job, seen jobs.State) (news bool) {
	s.mu.Lock()
	news = seen.Changed.After(j.changed)
	j.changed = later(j.changed, seen.Changed)
	s.mu.Unlock()
	next := never // when another run may have died, or was left
	for _, r := range seen.Runs {
		switch {
		case r.ExpireAt.After(seen.Now):
			next = earlier(next, r.ExpireAt.Add(time.Millisecond))
			if _, ours := s.runs.find(r.ID); !ours && seen.Now.Sub(r.Began) > often {
				next = earlier(next, s.store.Now().Add(often))
			}
		case seen.Paused: // it is repeated after the pause
		default:
			if r.Outcome == "" && r.Verdict == "" && s.runs.neverBegan(r.ID) {
				r.Outcome = jobs.Unbegun
			}
			at := s.store.Now()
			for _, t := range []time.Time{r.Again, r.Due} {
				if !isFar(t, at) { // otherwise a clock was wrong
					at = later(at, t)
				}
			}
			s.put(item{at: at, job: j, task: repeatRun, dead: r, seq: seen.Seq})
		}
	}
	for _, id := range s.runs.unrecorded(j.name) {
		if !slices.ContainsFunc(seen.Runs, func(r jobs.Run) bool { return r.ID == id }) { // the past tells what became of it
			s.put(item{at: s.store.Now(), job: j, task: repeatRun, dead: jobs.Run{ID: id}})
		}
	}
	if next.Before(never) {
		s.readAt(j, next)
	}
	return news
}

// repetition returns the claim that goes on with a run that is over: by another attempt, or by a verdict.
func (j *job) repetition(dead jobs.Run, now time.Time, jitter time.Duration) jobs.Claim {
	run := jobs.Run{Due: dead.Due, Attempt: dead.Attempt, Deaths: dead.Deaths, Fails: dead.Fails, Drops: dead.Drops, Verdict: dead.Verdict}
	if dead.Verdict != "" { // goes on as it was
		run.Owner, run.Began, run.Error = dead.Owner, dead.Began, dead.Error
		return jobs.Claim{Run: run, Dead: &dead}
	}
	outcome, unbegun := Outcome(dead.Outcome), dead.Outcome == jobs.Unbegun
	var why string
	switch outcome {
	case "":
		outcome, unbegun = Died, !dead.Begun
		if run.Deaths++; run.Deaths >= mostDeaths {
			why = "its runs died"
		}
	case Failed, Panicked:
		run.Fails++
	}
	switch {
	case isFar(dead.Due, now):
		why, outcome = "it was claimed by a wrong clock", Died
	case dead.Outcome != jobs.Unbegun && j.once:
		why = "its run did not come to an end, and AtMostOnce allows no other"
	case why == "" && j.tooLate(dead.Due, now, jitter) && (unbegun || outcome == Failed || outcome == Panicked):
		run.Verdict, run.Drops = string(TooLate), append(run.Drops, jobs.Drop{First: dead.Due, Last: dead.Due, Count: 1, Why: tooOld})
	case dead.Outcome != jobs.Unbegun && why == "":
		run.Attempt++
	}
	if why != "" {
		run.Verdict, run.Drops = string(outcome), append(run.Drops, jobs.Drop{First: dead.Due, Last: dead.Due, Count: 1, Why: why})
		run.Owner, run.Began, run.Error = dead.Owner, dead.Began, cmp.Or(dead.Error, "given up: "+why)
	}
	return jobs.Claim{Run: run, Dead: &dead, Enter: dead.Outcome != jobs.Unbegun && why == ""}
}

// isFar reports whether a due time is so far ahead that a clock was wrong when it was claimed.
func isFar(at, now time.Time) bool { return at.After(now.Add(farAhead)) }

// repeat goes on with a run that is over.
func (s *Scheduler) repeat(ctx, runs context.Context, j *job, dead jobs.Run, seq int64) {
	switch done := s.runs.endAgain(ctx, dead.ID); {
	case done: // it was this process's own, and its end could not be recorded before
		s.readAt(j, s.store.Now())
		return
	case dead.Due.IsZero():
		s.readAt(j, s.store.Now().Add(often))
		return
	}
	c := j.repetition(dead, s.store.Now(), s.jitter)
	c.Seq = seq
	lease, a, err := s.claim(ctx, j, c)
	if err != nil { // another process was quicker, or the claim failed
		if !errors.Is(err, jobs.ErrNotDue) && !errors.Is(err, mongolock.ErrOutcomeUnknown) && ctx.Err() == nil {
			s.logger.Warn("schedule: a run could not be repeated, which is tried again", "job", j.name, "due", dead.Due, "error", err)
		}
		s.readAt(j, s.store.Now().Add(time.Second))
		return
	}
	s.carryOut(runs, j, a, lease)
	s.readAt(j, s.store.Now()) // other due times may have come
}

// setStale makes the next attempt read the job's document first.
func (s *Scheduler) setStale(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.stale = true
}

func (s *Scheduler) isStale(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.stale
}

func (s *Scheduler) takeStale(j *job) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, j.stale = j.stale, false
	return was
}
