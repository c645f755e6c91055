package schedule

import (
	"container/heap"
	"context"
	"time"
)

// watchAt schedules a look at the job's runs, in case one of them dies. With AtOnce every
// process that did not get the fire looks.
func (s *Scheduler) watchAt(j *job, at time.Time) {
	s.mu.Lock()
	already := j.watching
	j.watching = true
	s.mu.Unlock()
	if !already {
		s.put(item{at: at, job: j, watch: true})
	}
}

// look repeats runs that died, and schedules the next look for when another may have.
func (s *Scheduler) look(ctx, runs context.Context, j *job) {
	state, err := s.Job(ctx, j.name)
	if err != nil {
		if ctx.Err() == nil {
			s.logger.Warn("schedule: cannot look whether a run has died", "job", j.name, "error", err)
			s.watchAt(j, s.store.Now().Add(time.Second))
		}
		return
	}
	var next time.Time
	var dead []Run
	for _, r := range state.Runs {
		if _, ours := s.engine.find(r.ID); ours && r.ExpireAt.After(state.Now) {
			continue
		}
		if !r.ExpireAt.After(state.Now) {
			dead = append(dead, r)
		} else if next.IsZero() || r.ExpireAt.Before(next) {
			next = r.ExpireAt
		}
	}
	if !next.IsZero() {
		s.watchAt(j, next.Add(time.Millisecond))
	}
	if len(state.Runs) == 0 && due(j.plan.Next(state.Decided), state.Now) {
		s.setStale(j) // a process that died later has left a fire behind
	}
	for _, r := range dead {
		s.takeOver(ctx, runs, j, r, s.take(j))
	}
}

// takeOver repeats a run that died, in its place. If its fire was tried often enough, the
// run is entered as died instead, so that the job can go on. If the caller holds the
// job's own item (mine), takeOver puts it back.
func (s *Scheduler) takeOver(ctx, runs context.Context, j *job, dead Run, mine bool) {
	defer func() {
		s.setStale(j) // other fires may have come due: read before the next claim
		if mine {
			s.put(item{at: s.store.Now(), job: j})
		}
	}()
	if dead.Attempt >= mostAttempts {
		dead.Outcome, dead.Error = Died, "given up"
		ref := Ref{Job: j.name, ID: dead.ID, Shared: j.overlap == Allow}
		if err := s.store.Finish(ctx, End{Ref: ref, Run: dead, Slot: dead.Slot, Keep: j.keep}); err == nil {
			s.logger.Error("schedule: a fire is given up, because all its runs died", "run", dead)
		}
		return
	}
	lease, a, err := s.claim(ctx, j, Claim{Fire: dead.Fire, Attempt: dead.Attempt + 1, Dead: &dead})
	if err != nil {
		if ctx.Err() == nil { // another process was quicker, or the claim failed
			s.watchAt(j, s.store.Now().Add(time.Second))
		}
		return
	}
	r := a.tracked.run()
	r.Lease = lease
	s.execute(runs, j, a.tracked, r)
}

// take takes the job's item out of the queue, so that no other goroutine serves the job.
func (s *Scheduler) take(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, it := range s.queue {
		if it.job == j && !it.watch {
			heap.Remove(&s.queue, i)
			return true
		}
	}
	return false
}
