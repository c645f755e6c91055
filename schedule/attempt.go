package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mongolock/mongolock"
)

const (
	// missedAfter is how old a fire may be that is still run where missed ones are not.
	missedAfter = time.Minute

	// relook is how often, with All, a process that loses a claim looks whether
	// fires were left behind by one that died.
	relook = time.Minute
)

// never stands for the fire after the last.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// after is the fire after t.
func (j *job) after(t time.Time) time.Time {
	if n := j.plan.Next(t); n.After(t) {
		return n
	}
	return never
}

// begin points the job at the fire to claim first.
func (j *job) begin(seen State, now time.Time) {
	j.fire, j.mark, j.sure, j.stale = j.after(now), time.Time{}, false, false
	if !seen.Known {
		return
	}
	switch j.missed {
	case None:
		if last, ok := latest(j.plan, now.Add(-missedAfter), now); ok && last.After(seen.Decided) {
			j.fire = last // it is on time, and nobody has it
		}
	case One:
		if last, ok := latest(j.plan, seen.Decided, now); ok {
			j.fire = last
		}
	case All:
		j.catchUp(seen)
	}
}

// catchUp points the job at the first fire that is not decided, as the document
// says.
func (j *job) catchUp(seen State) {
	if seen.Known {
		j.fire, j.mark, j.sure = j.after(seen.Decided), seen.Decided, true
	}
}

// aim moves a job that fell behind on to the fire to claim now, or the one to wait
// for.
func (s *Scheduler) aim(ctx context.Context, j *job, now time.Time) error {
	behind := !j.queued && due(j.plan.Next(j.fire), now)
	if stale := s.takeStale(j); stale || j.missed == All && behind && !j.sure {
		state, err := s.Job(ctx, j.name)
		switch {
		case err != nil:
			s.setStale(j)
			return err
		case j.overlap != Allow && state.live():
			s.setStale(j)
			return errAtWork
		case j.missed == All && !j.queued:
			j.catchUp(state)
		}
	}
	if j.queued {
		return nil // it is run however old it is
	}
	if behind && j.missed != All {
		j.fire, _ = latest(j.plan, j.fire, now)
	}
	if j.missed == None && due(j.fire, now) && now.Sub(j.fire) > missedAfter {
		j.fire = j.after(now)
	}
	return nil
}

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

// serve does one item. It returns when there is nothing left to do about it, runs
// included.
func (s *Scheduler) serve(ctx, runs context.Context, it item) {
	if it.watch {
		s.mu.Lock()
		it.job.watching = false
		s.mu.Unlock()
		s.look(ctx, runs, it.job)
		return
	}
	j := it.job
	if err := s.attempt(ctx, runs, j); err != nil && ctx.Err() == nil {
		if !errors.Is(err, errAtWork) {
			s.event(Event{Kind: Faulted, Job: j.name, Fire: j.fire, Err: err})
			s.logger.Warn("schedule: a claim failed, and is tried again", "job", j.name, "fire", j.fire, "error", err)
		}
		if j.pause == nil {
			j.pause = backoff()
		}
		s.put(item{at: s.store.Now().Add(j.pause()), job: j})
	}
}

// attempt makes one claim of the job's fire, and runs it. An error means that
// nothing was decided.
func (s *Scheduler) attempt(ctx, runs context.Context, j *job) error {
	if len(j.doubts) > 0 {
		if goOn, err := s.resolve(ctx, runs, j); err != nil || !goOn {
			return err
		}
	}
	if err := s.aim(ctx, j, s.store.Now()); err != nil {
		return err
	}
	if j.fire.After(s.store.Now()) {
		j.pause = nil
		s.put(item{at: s.later(j.fire), job: j})
		return nil
	}
	claim := Claim{Fire: j.fire, Attempt: 1, Wait: j.death == AtOnce}
	if j.missed == All {
		claim.From = j.mark
	}
	lease, won, err := s.claim(ctx, j, claim)
	switch {
	case errors.Is(err, ErrNotDue):
		j.pause = nil
		s.lost(ctx, j, won)
		return nil
	case err != nil:
		if errors.Is(err, mongolock.ErrOutcomeUnknown) && won.tracked != nil {
			j.doubts = append(j.doubts, won.tracked.claim.ID)
		}
		return err
	}
	j.pause = nil
	s.won(runs, j, won, lease)
	return nil
}

// claim sends one claim, as the lease engine does.
func (s *Scheduler) claim(ctx context.Context, j *job, c Claim) (*mongolock.Lease, *ask, error) {
	c.Job, c.Shared = j.name, j.overlap == Allow
	c.Next, c.Plan, c.Keep = j.after(c.Fire), j.plan.String(), j.keep
	a := &ask{claim: c, repeat: j.death == AtOnce}
	key := j.name + "@" + c.Fire.UTC().Format("2006-01-02T15:04:05.000Z")
	opts := make([]mongolock.AcquireOption, len(j.lease))
	for i, o := range j.lease {
		opts[i] = o
	}
	lease, err := s.client.TryAcquire(context.WithValue(ctx, askKey{}, a), key, opts...)
	if err != nil && ctx.Err() != nil {
		return nil, &ask{}, err // the claim may be on its way still, and have it
	}
	return lease, a, err
}

// won runs a claimed fire, and sees to the next one: at once where runs may be
// under way side by side, else when this one has ended.
func (s *Scheduler) won(runs context.Context, j *job, a *ask, lease *mongolock.Lease) {
	r := a.tracked.run()
	r.Lease = lease
	j.mark, j.sure, j.queued = r.Fire, true, false
	if j.overlap == Allow {
		j.fire = j.after(r.Fire)
		s.put(item{at: s.soon(j.fire), job: j})
		s.execute(runs, j, a.tracked, r)
		return
	}
	var skipped time.Time
	defer func() {
		j.goOn(r, skipped, s.store.Now())
		s.put(item{at: s.soon(j.fire), job: j})
	}()
	skipped = s.execute(runs, j, a.tracked, r)
}

// soon is when to claim a fire that may be due already: then without jitter.
func (s *Scheduler) soon(fire time.Time) time.Time {
	if !fire.After(s.store.Now()) {
		return fire
	}
	return s.later(fire)
}

// goOn points the job at the fire after a run of it that has ended, which skipped
// those up to a time.
func (j *job) goOn(r Run, skipped, now time.Time) {
	j.fire = j.after(r.Fire)
	if !j.fire.After(r.Began) {
		return // it came before the run began: not overlapped but missed, which aim knows about
	}
	if !skipped.IsZero() {
		j.fire, j.mark = j.after(skipped), skipped
	}
	if last, came := latest(j.plan, r.Fire, now); came && j.overlap == QueueOne {
		j.fire, j.queued = last, true
	}
}

// lost goes on after a fire that another process has.
func (s *Scheduler) lost(ctx context.Context, j *job, a *ask) {
	s.event(Event{Kind: Passed, Job: j.name, Fire: j.fire})
	now := s.store.Now()
	j.mark, j.sure, j.queued = j.fire, false, false
	j.fire = j.after(j.fire)
	switch {
	case j.missed != All:
	case due(j.fire, now):
		s.setStale(j) // it fell behind: the document tells where to go on
	case now.Sub(j.looked) >= relook:
		if state, err := s.Job(ctx, j.name); err == nil {
			j.looked = now
			if state.Decided.Before(j.mark) && !state.live() {
				j.catchUp(state)
			}
		}
	}
	if j.death == AtOnce && a.tracked != nil {
		s.watchAt(j, now.Add(a.tracked.claim.TTL))
	}
	s.put(item{at: s.soon(j.fire), job: j})
}

// live reports whether a run is under way whose process lives.
func (s State) live() bool {
	return slices.ContainsFunc(s.Runs, func(r Run) bool { return r.ExpireAt.After(s.Now) })
}

// resolve finds out what became of claims whose outcome was unknown. If one of them
// is still there it is being undone; if that failed for as long as it is believed
// to live, its fire is taken up again: it was never begun.
//
// It reports whether the fire may be claimed; if not, the job was put back.
func (s *Scheduler) resolve(ctx, runs context.Context, j *job) (claim bool, err error) {
	state, err := s.Job(ctx, j.name)
	if err != nil {
		return false, err
	}
	for _, r := range state.Runs {
		if !slices.Contains(j.doubts, r.ID) {
			continue
		}
		if r.ExpireAt.After(state.Now) {
			return false, errUndoing
		}
		j.doubts = nil
		s.takeOver(ctx, runs, j, r, true)
		return false, nil
	}
	j.doubts = nil
	if state.Known && !state.Decided.Before(j.fire) {
		j.fire = j.after(j.fire) // decided, and not by us
		s.put(item{at: s.soon(j.fire), job: j})
		return false, nil
	}
	return true, nil
}

var (
	errUndoing = errors.New("schedule: an earlier claim is being undone")

	// errAtWork: the document was read, and the job is at work. It is read again, ever
	// more rarely, until that is over.
	errAtWork = errors.New("schedule: the job is at work")
)
