package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
)

// An Event says what became of a fire in this process.
type Event struct {
	Kind  Kind
	Job   string
	Fire  time.Time // Skipped and MissedFires: the last of the fires
	First time.Time // Skipped and MissedFires: the first of the fires
	At    time.Time // by the store's clock, as far as it is known
	Run   *Run      // Began, Ended and Skipped: the run
	Err   error     // Faulted: the claim's error; Ended: the function's
}

// Kind says what happened to the fire of an Event.
type Kind string

// The kinds of events.
const (
	Began       Kind = "began"   // this process claimed the fire, and runs it
	Passed      Kind = "passed"  // another process has claimed it, or a run is under way
	Ended       Kind = "ended"   // the run is over
	Skipped     Kind = "skipped" // these fires came due while the run was under way, and will not run
	MissedFires Kind = "missed"  // no process had claimed these fires in time, and they will not run
	Faulted     Kind = "faulted" // the claim failed and will be repeated
)

func (s *Scheduler) event(e Event) {
	if e.Kind == Skipped || e.Kind == MissedFires {
		s.observeMiss(e)
	}
	if s.events != nil {
		e.At = s.store.Now()
		s.events(e)
	}
}

// execute calls the function under its lease, and records how it ended. If the function panics,
// execute records that and then goes on panicking. It returns up to when fires were skipped.
func (s *Scheduler) execute(ctx context.Context, j *job, t *tracked, r Run) (skipped time.Time) {
	if early := r.Fire.Sub(r.Began); early > 0 { // the sample of the server's clock was old
		backoff.Sleep(ctx, early)
		r.Began = r.Fire
	}
	s.engine.begin(r.ID, r.Began)
	s.event(Event{Kind: Began, Job: j.name, Fire: r.Fire, Run: &r})
	var err error
	shown, end := s.observeRun(ctx, j, r)
	began, returned := time.Now(), false
	defer func() {
		took := time.Since(began)
		end(err, returned)
		if returned {
			skipped = s.finish(ctx, j, t, r, took, Failed, err)
			return
		}
		panicked := recover()
		if panicked == nil {
			s.finish(ctx, j, t, r, took, Failed, errGoexit)
			return
		}
		s.finish(ctx, j, t, r, took, Panicked, panicError(panicked))
		panic(panicked) // the trace still shows the frames of the first panic
	}()
	err = j.fn(r.Lease.Context(shown), r)
	returned = true
	return skipped
}

// finish ends the run, whose process is stopping if ctx has ended, its lease and its record with one command. If the command fails,
// the engine goes on in the background.
func (s *Scheduler) finish(ctx context.Context, j *job, t *tracked, r Run, took time.Duration, outcome Outcome, err error) (skipped time.Time) {
	switch lost := r.Lease.Err(); {
	case outcome == Failed && err == nil && lost == nil:
		outcome = Succeeded
	case outcome == Failed && lost == nil && ctx.Err() != nil:
		outcome = Stopped
	case outcome != Panicked && errors.Is(lost, mongolock.ErrLost):
		outcome, err = Died, errors.Join(err, lost)
	}
	end := t.endAs(outcome, err)
	if j.overlap == Skip && j.after(r.Fire).After(r.Began) && outcome != Died {
		end.Decided, _ = latest(j.plan, r.Fire, r.Fire.Add(took)) // a late beginning skips no fire
	}
	s.engine.ended(r.ID, end)
	if failed := r.Lease.Release(); failed != nil && !errors.Is(failed, mongolock.ErrLost) {
		s.logger.Warn("schedule: the end of a run could not be written and will be repeated in the background", "run", r, "error", failed)
		s.setStale(j) // until it is written the job is busy, and refuses claims
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
		if j.death == AtOnce {
			s.lookAt(j, s.store.Now()) // perhaps no other process can repeat the run
		}
	}
	s.event(Event{Kind: Ended, Job: j.name, Fire: r.Fire, Run: &r, Err: err})
	if !end.Decided.IsZero() && outcome != Died {
		s.logger.Info("schedule: a run took longer than its job's period, so fires were skipped", "run", r, "took", took, "until", end.Decided)
		s.event(Event{Kind: Skipped, Job: j.name, First: j.after(r.Fire), Fire: end.Decided, Run: &r})
	}
	return end.Decided
}

func panicError(v any) error {
	if err, ok := v.(error); ok {
		return err
	}
	return &valueError{v}
}
