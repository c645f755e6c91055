package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
)

// An Event says what became of a due time in this process, or of several.
type Event struct {
	Kind  Kind
	Job   string
	Due   time.Time // Dropped: the last of the due times
	First time.Time // Dropped: the first of them
	Count int       // Dropped: how many they are; of a Cron at most a million are counted
	At    time.Time // by the store's clock, as far as it is known
	Run   *Run      // Began and Ended: the run
	Err   error     // Faulted: the error; Ended: the function's
}

// Kind says what happened to the due time of an Event.
type Kind string

// The kinds of events.
const (
	Began   Kind = "began"   // this process claimed the due time, and runs it
	Passed  Kind = "passed"  // another process has claimed it, or a run is under way, or the job is paused
	Ended   Kind = "ended"   // the run is over
	Dropped Kind = "dropped" // these due times will not run; told once, by the process that claims the next one
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

// awaitDue waits for the due time of a run that was claimed before it, as the sample of the server's clock was
// old. If ctx ends first, or the lease does, it gives the due time back, and reports false. Otherwise the run has
// begun.
func (s *Scheduler) awaitDue(ctx context.Context, j *job, r *Run) bool {
	if early := r.Due.Sub(r.Began); early > 0 {
		if !backoff.Sleep(ctx, early) {
			if err := r.Lease.Release(); err != nil {
				s.logger.Warn("schedule: giving back a due time goes on in the background", "run", r, "error", err)
			}
			return false
		}
		r.Began = r.Due
	}
	if s.runs.begin(*r) {
		return true
	}
	s.logger.Warn("schedule: a run's lease was lost before the run began", "run", r, "error", r.Lease.Err())
	s.setPassed(j, r.Due)
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
	over := r.Lease.Err()
	switch lost := errors.Is(over, mongolock.ErrLost); {
	case outcome == Failed && err == nil && !lost:
		outcome = Succeeded
	case outcome == Failed && !lost && ctx.Err() != nil:
		outcome = Stopped
	case outcome != Panicked && lost:
		outcome, err = Died, errors.Join(err, over)
	}
	s.runs.ended(r.ID, t.endAs(outcome, err))
	if failed := r.Lease.Release(); failed != nil && !errors.Is(failed, mongolock.ErrLost) {
		s.logger.Warn("schedule: could not record the end of a run; trying again in the background", "run", r, "error", failed)
		s.setStale(j) // until it is recorded the job is busy, and refuses claims
	} else if failed != nil && outcome != Died {
		outcome, err = Died, errors.Join(err, failed) // the release was the first to notice the loss
	}
	if err != nil {
		s.logger.Warn("schedule: a run failed", "run", r, "outcome", string(outcome), "error", err)
	}
	r.Outcome = outcome
	if err != nil {
		r.Error = clip(err.Error())
	}
	if outcome == Died {
		s.setStale(j)
		if !j.once {
			s.readAt(j, s.store.Now()) // perhaps no other process can repeat the run
		}
	}
	s.event(Event{Kind: Ended, Job: j.name, Due: r.Due, Run: &r, Err: err})
}

func panicError(v any) error {
	if err, ok := v.(error); ok {
		return err
	}
	return &valueError{v}
}
