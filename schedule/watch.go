package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock/store"
)

// look reads the documents of jobs whose claims were refused, with one command. See seen.
func (s *Scheduler) look(ctx context.Context, jobs []*job) {
	states, err := s.store.Look(ctx, names(jobs), WithoutPast)
	if err != nil && !errors.Is(err, store.ErrForeign) || len(states) != len(jobs) {
		if ctx.Err() == nil {
			s.logger.Warn("schedule: cannot look at jobs again, trying later", "jobs", len(jobs), "error", err)
			for _, j := range jobs {
				s.lookAt(j, s.store.Now().Add(often))
			}
		}
		return
	}
	for i, j := range jobs {
		if states[i].Known {
			s.seen(ctx, j, states[i])
		}
	}
}

// seen acts on what a look has shown. With AtOnce, runs that died are repeated. A fire that
// another process claimed and gave back is claimed here.
func (s *Scheduler) seen(ctx context.Context, j *job, state State) {
	var next time.Time // when another run may have died
	died := false
	for _, r := range state.Runs {
		_, ours := s.engine.find(r.ID)
		switch {
		case !r.ExpireAt.After(state.Now):
			died = true
			if j.death == AtOnce {
				s.put(item{at: s.store.Now(), job: j, task: repeatRun, dead: r})
			}
		case !ours && (next.IsZero() || r.ExpireAt.Before(next)):
			next = r.ExpireAt
		}
	}
	if j.death == AtOnce {
		if !next.IsZero() {
			s.lookAt(j, next.Add(time.Millisecond))
		}
		if died {
			return // fires after it are read when the run has been repeated
		}
	}
	passed := s.takePassed(j)
	if passed.IsZero() || j.busy(state) || !s.wasGivenBack(ctx, j, passed, state) {
		return
	}
	if !s.take(j) {
		s.setStale(j) // a claim is under way: the job is read before the next one
		return
	}
	if j.fire = passed; j.missed == All {
		j.catchUp(state)
	}
	s.put(item{at: s.store.Now(), job: j})
}

// wasGivenBack reports whether the fire is not decided after all.
func (s *Scheduler) wasGivenBack(ctx context.Context, j *job, fire time.Time, state State) bool {
	full, ahead := s.isAhead(ctx, j, state)
	if !ahead {
		return state.Decided.Before(fire)
	}
	return full.Known && !full.ran(fire) // then decided does not tell about this fire
}

// takeOver repeats a run that died, in its place. If its fire was attempted often enough, the
// run is entered as died instead, so that the job can go on. If the caller holds the job's own
// item (mine), takeOver puts it back.
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
			s.lookAt(j, s.store.Now().Add(time.Second))
		}
		return
	}
	r := a.tracked.run()
	r.Lease = lease
	s.execute(runs, j, a.tracked, r)
}

// setStale makes the next attempt read the job's document first.
func (s *Scheduler) setStale(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.stale = true
}

func (s *Scheduler) takeStale(j *job) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, j.stale = j.stale, false
	return was
}

func (s *Scheduler) setPassed(j *job, fire time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.passed = fire
}

func (s *Scheduler) takePassed(j *job) (fire time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fire, j.passed = j.passed, time.Time{}
	return fire
}

func (s *Scheduler) setAhead(j *job, decided time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.ahead = decided
}

func (s *Scheduler) takeAhead(j *job) (decided time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	decided, j.ahead = j.ahead, time.Time{}
	return decided
}
