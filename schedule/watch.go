package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

// reread reads the documents of jobs whose claims were refused, with one command. See seen.
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
		switch {
		case states[i].Known:
			s.seen(ctx, j, states[i])
		case states[i].Foreign != nil:
			s.event(Event{Kind: Faulted, Job: j.name, Err: states[i].Foreign})
		}
	}
}

func (s *Scheduler) logForeign(err error) {
	s.logger.Error("schedule: a job will not run until its document is mended, or forgotten with mongolock jobs forget", "error", err)
}

// seen acts on what a read has shown. Runs that were stopped or died are repeated. A due time
// that nobody has decided is claimed here: another process claimed it and gave it back, or a run
// that kept the job busy has died, or the job was told to run now.
func (s *Scheduler) seen(ctx context.Context, j *job, state jobs.State) {
	var next time.Time // when another run may have died
	var dead []jobs.Run
	for _, r := range state.Runs { // of this process too: its claim may be being undone, or its job have been removed since
		switch {
		case !r.ExpireAt.After(state.Now):
			dead = append(dead, r)
		case next.IsZero() || r.ExpireAt.Before(next):
			next = r.ExpireAt
		}
	}
	if state.Paused {
		s.setPassed(j, time.Time{})
		switch {
		case j.once:
		case len(dead) > 0: // it is repeated after the pause
			s.readAt(j, s.store.Now().Add(pollEvery))
		case !next.IsZero():
			s.readAt(j, next.Add(time.Millisecond))
		}
		return
	}
	passed := s.lastPassed(j)
	if state.Asked.After(state.Decided) {
		j.asked.Store(state.Asked.UnixMilli())
		passed = later(passed, state.Asked)
		s.setPassed(j, passed)
	}
	if !j.once {
		for _, r := range dead {
			s.put(item{at: s.store.Now(), job: j, task: repeatRun, dead: r})
		}
		if !next.IsZero() {
			s.readAt(j, next.Add(time.Millisecond))
		}
		if len(dead) > 0 {
			return // due times after it are read when the run has been repeated
		}
	}
	switch {
	case passed.IsZero():
		return
	case !s.isUndecided(ctx, j, passed, state):
		s.setPassed(j, time.Time{})
		return
	case j.busy(state):
		s.readAt(j, next.Add(time.Millisecond))
		return
	}
	if !s.take(j) {
		s.setStale(j) // a claim is under way: the job is read before the next one, which may be far off
		s.readAt(j, s.store.Now().Add(often))
		return
	}
	s.setPassed(j, time.Time{})
	now := s.store.Now()
	if j.due = passed; state.Decided.Before(passed) {
		s.catchUp(j, state, now)
	}
	if passed.Equal(state.Asked) && due(passed, now) && j.due.After(now) { // RunNow was called under another plan
		j.due = passed
	}
	s.put(item{at: s.store.Now(), job: j})
}

// isUndecided reports whether nobody has decided the due time.
func (s *Scheduler) isUndecided(ctx context.Context, j *job, at time.Time, state jobs.State) bool {
	full, ahead := s.isAhead(ctx, j, state)
	if !ahead {
		return state.Decided.Before(at)
	}
	return full.Known && !ran(full, at) // then decided does not tell about it
}

// takeOver repeats a run that was stopped or died, in its place. If its due time was attempted
// often enough, or has not come, the run is entered in the past instead, so that the job can go on. If the caller
// holds the job's own item (mine), takeOver puts it back.
func (s *Scheduler) takeOver(ctx, runs context.Context, j *job, dead jobs.Run, mine bool) {
	goOn := func() {
		s.setStale(j) // other due times may have come: read before the next claim
		if mine {
			s.put(item{at: s.store.Now(), job: j})
		}
	}
	readAt := func(at time.Time) {
		s.readAt(j, at)
		if mine {
			s.await(j)
		}
	}
	early := dead.Due.After(s.store.Now().Add(wrongBy)) // it was claimed by a wrong clock
	givenUp := dead.Attempt >= lastAttempt
	if !early && (givenUp || dead.Attempt >= mostAttempts && dead.Outcome != string(Stopped)) {
		if sure := dead.ExpireAt.Add(wrongBy); sure.After(s.store.Now()) { // another clock may have written its end, and no claim judges that
			readAt(sure)
			return
		}
		died, err := s.died(ctx, dead)
		if err != nil {
			readAt(s.store.Now().Add(time.Second))
			return
		}
		givenUp = givenUp || died >= mostAttempts
	}
	if early || givenUp {
		defer goOn()
		ref := jobs.Ref{Job: j.name, ID: dead.ID, Shared: !dead.Alone}
		if dead.Outcome == "" {
			dead.Outcome, dead.Error = string(Died), "given up by "+s.owner
		}
		end := jobs.End{Ref: ref, Run: dead, Slot: dead.Slot, Keep: j.keep}
		err := s.store.Finish(ctx, end)
		if err != nil && !store.IsCertain(err) { // it may have been applied, and is told by who did it
			if err = s.store.Finish(ctx, end); errors.Is(err, store.ErrGone) && s.hasEntered(ctx, dead) {
				err = nil
			}
		}
		if err != nil && !errors.Is(err, store.ErrGone) {
			s.readAt(j, s.store.Now().Add(often))
		}
		if err == nil && !early {
			s.logger.Error("schedule: a due time is given up, because all its runs died", "run", runOf(dead))
			s.event(Event{Kind: Dropped, Job: j.name, First: dead.Due, Due: dead.Due, Count: 1})
		}
		return
	}
	lease, a, err := s.claim(ctx, j, jobs.Claim{Due: dead.Due, Attempt: dead.Attempt + 1, Dead: &dead})
	if err != nil { // another process was quicker, or the claim failed
		readAt(s.store.Now().Add(time.Second))
		return
	}
	defer goOn()
	if r := runWith(a.tracked.run(), lease); s.awaitDue(runs, j, &r) {
		s.execute(runs, j, a.tracked, r)
	}
}

// hasEntered reports whether this process entered the run in the past, as far as the past shows.
func (s *Scheduler) hasEntered(ctx context.Context, dead jobs.Run) bool {
	all, err := s.store.Read(ctx, []string{dead.Job}, jobs.WithPast)
	if err != nil {
		return true // rather told twice than never
	}
	other := func(r jobs.Run) bool { return r.ID == dead.ID && r.Error != dead.Error }
	return !slices.ContainsFunc(all[0].Past, other)
}

// died returns how many attempts at the run's due time have died, this one included: all but those that the
// past shows as stopped.
func (s *Scheduler) died(ctx context.Context, dead jobs.Run) (n int, err error) {
	all, err := s.store.Read(ctx, []string{dead.Job}, jobs.WithPast)
	if err != nil {
		return 0, err
	}
	alive := func(r jobs.Run) bool { return r.ID == dead.ID && r.ExpireAt.After(dead.ExpireAt) }
	if slices.ContainsFunc(all[0].Runs, alive) {
		return 0, errAtWork // it was renewed since it was read
	}
	stopped := map[int]bool{} // by attempt: one whose repetition was undone is there twice
	for _, r := range all[0].Past {
		if r.Due.Equal(dead.Due) && r.Outcome == string(Stopped) {
			stopped[r.Attempt] = true
		}
	}
	return dead.Attempt - len(stopped), nil
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

// setPassed remembers the last due time whose claim was refused; zero: none.
func (s *Scheduler) setPassed(j *job, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.passed = at
}

func (s *Scheduler) lastPassed(j *job) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.passed
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
