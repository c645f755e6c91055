package schedule

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// An Event says what became of a due time in this process, or of several.
type Event struct {
	Kind  Kind
	Job   string
	Due   time.Time // Dropped: the last of the due times
	First time.Time // Dropped: the first of them
	Count int       // Dropped: how many they are; of a Cron at most a million are counted
	Why   string    // Dropped: why
	At    time.Time // by the store's clock, as far as it is known
	Run   *Run      // Began and Ended: the run
	Again time.Time // Ended: the run is repeated after that; zero: the due time has its fate
	Err   error     // Faulted: the error; Ended: the function's
}

// Kind says what happened to the due time of an Event.
type Kind string

// The kinds of events.
const (
	Began   Kind = "began"   // this process claimed the due time, and runs it
	Passed  Kind = "passed"  // another process has claimed it, or a run is under way, or the job is paused
	Ended   Kind = "ended"   // the run is over, and that is recorded; or it was lost, and another process goes on with it
	Dropped Kind = "dropped" // these due times will not run, or not once more; told by the process that has recorded it
	Faulted Kind = "faulted" // the claim failed and will be repeated, or the job's document cannot be read
)

func (s *Scheduler) event(e Event) {
	if e.Kind == Dropped {
		s.observeDropped(e)
	}
	if s.events != nil {
		e.At = s.store.Now()
		s.events(e)
	}
}

// tellDropped tells what a claim has recorded as dropped.
func (s *Scheduler) tellDropped(j *job, d jobs.Drop) {
	s.logger.Warn("schedule: due times were dropped", "job", j.name, "count", d.Count, "first", d.First, "last", d.Last, "why", d.Why)
	s.event(Event{Kind: Dropped, Job: j.name, First: d.First, Due: d.Last, Count: d.Count, Why: d.Why})
}

// awaitDue waits for the due time of a run that was claimed before it, as the sample of the server's clock was
// old. If ctx ends first, or the lease does, it gives the due time back, and reports false. Otherwise the run has
// begun.
func (s *Scheduler) awaitDue(ctx context.Context, j *job, r *Run) bool {
	if early := r.Due.Sub(r.Began); early > 0 {
		if !backoff.Sleep(ctx, early) {
			if err := r.Lease.Release(); err != nil {
				s.logger.Warn("schedule: giving back a due time goes on in the background", "run", r, "error", err)
			}
			s.setStale(j)
			return false
		}
		r.Began = r.Due
	}
	if s.runs.begin(*r) {
		return true
	}
	s.logger.Warn("schedule: a run's lease was lost before the run began", "run", r, "error", r.Lease.Err())
	s.readAt(j, s.store.Now().Add(time.Second))
	return false
}

// execute calls the function under its lease, and records how it ended. If the function panics,
// execute records that and then goes on panicking.
func (s *Scheduler) execute(ctx context.Context, j *job, t *tracked, r Run) {
	s.event(Event{Kind: Began, Job: j.name, Due: r.Due, Run: &r})
	var err error
	shown, end := s.observeRun(ctx, j, r)
	returned := false
	defer func() {
		end(err, returned)
		if returned {
			s.finish(ctx, j, t, r, Failed, err)
			return
		}
		panicked := recover()
		if panicked == nil {
			s.finish(ctx, j, t, r, Failed, errGoexit)
			return
		}
		s.finish(ctx, j, t, r, Panicked, panicError(panicked))
		panic(panicked) // the trace still shows the frames of the first panic
	}()
	err = j.fn(r.Lease.Context(shown), r)
	returned = true
}

// finish ends the run, whose process is stopping if ctx has ended, its lease and its record with
// one command. If the command fails, the client of leases goes on in the background.
func (s *Scheduler) finish(ctx context.Context, j *job, t *tracked, r Run, outcome Outcome, err error) {
	called := t.claim.Run.Verdict == "" && outcome != TooLate
	now := s.store.Now()
	lost := errors.Is(r.Lease.Err(), mongolock.ErrLost)
	switch {
	case !called:
	case lost:
		outcome, err = Died, errors.Join(err, r.Lease.Err())
	case outcome == Failed && err == nil:
		outcome = Succeeded
	case outcome == Failed && ctx.Err() != nil:
		outcome = Stopped
	}
	e := t.endAs(outcome, err)
	if called {
		e.Run.Again = j.again(t.claim.Run, outcome, now, s.jitter)
	}
	written := &e
	if lost && called {
		written = nil
	}
	// It is told when it has been recorded, by whichever call that was.
	s.runs.ended(r.ID, written, func(recorded bool) {
		if !recorded {
			outcome, err, e.Run.Again = Died, errors.Join(err, r.Lease.Err()), now
		}
		if !called {
			return
		}
		if err != nil {
			level, says := slog.LevelWarn, "schedule: a run failed"
			switch {
			case outcome == Stopped:
				level, says = slog.LevelInfo, "schedule: a run was stopped with its process"
			case !recorded && !lost:
				says = "schedule: a run's end was not recorded: the run counts as died"
			}
			s.logger.Log(ctx, level, says, "run", r, "outcome", string(outcome), "error", err, "again", e.Run.Again)
			r.Error = clip(err.Error())
		}
		r.Outcome = outcome
		s.event(Event{Kind: Ended, Job: j.name, Due: r.Due, Run: &r, Err: err, Again: e.Run.Again})
	})
	switch failed := r.Lease.Release(); {
	case errors.Is(failed, mongolock.ErrLost), lost:
		s.runs.tell(r.ID, false)
		s.setStale(j)
		s.readAt(j, s.store.Now()) // perhaps no other process goes on with the run
	case failed != nil:
		s.logger.Warn("schedule: could not record the end of a run; trying again in the background", "run", r, "error", failed)
		s.setStale(j) // until it is recorded the job is busy, and refuses claims
		s.readAt(j, s.store.Now().Add(t.claim.TTL))
	case !e.Run.Again.IsZero() && ctx.Err() == nil: // this process repeats it, if no other does
		s.readAt(j, later(s.store.Now(), e.Run.Again))
	}
}

// again returns from when on a run with that outcome is repeated, or the zero time.
func (j *job) again(r jobs.Run, outcome Outcome, now time.Time, jitter time.Duration) time.Time {
	switch outcome {
	case Died:
		return now
	case Stopped:
		if !j.once {
			return now
		}
	case Failed, Panicked:
		at := now.Add(min(j.backoff<<min(r.Fails, 20), mostBackoff))
		if r.Fails < j.retries && !j.tooLate(r.Due, at, jitter) {
			return at
		}
	}
	return time.Time{}
}

func panicError(v any) error {
	if err, ok := v.(error); ok {
		return err
	}
	return &valueError{v}
}
