package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mongolock/mongolock"
)

const (
	// missedAfter is how old a fire may be and still run where missed ones do not.
	missedAfter = time.Minute

	// relook is how often, with All, a process that loses claims looks whether a process
	// that died has left fires behind.
	relook = time.Minute
)

// never stands for the fire after the last one.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// after returns the first fire after t.
func (j *job) after(t time.Time) time.Time {
	if n := j.plan.Next(t); n.After(t) {
		return n
	}
	return never
}

// begin sets the fire to claim first.
func (j *job) begin(seen State, now time.Time) {
	j.fire, j.mark, j.sure, j.stale = j.after(now), time.Time{}, false, false
	if !seen.Known {
		return
	}
	switch j.missed {
	case None:
		if last, ok := latest(j.plan, now.Add(-missedAfter), now); ok && last.After(seen.Decided) {
			j.fire = last // it is not late yet, and no process has claimed it
		}
	case One:
		if last, ok := latest(j.plan, seen.Decided, now); ok {
			j.fire = last
		}
	case All:
		j.catchUp(seen)
	}
}

// catchUp sets the fire to the first one that is not decided, according to the document.
func (j *job) catchUp(seen State) {
	if seen.Known {
		j.fire, j.mark, j.sure = j.after(seen.Decided), seen.Decided, true
	}
}

// aim sets the fire of a job that fell behind: to the one to claim now, or to the one to
// wait for.
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
		return nil // it runs however old it is
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

// serve does what an item is for. It returns when nothing is left to do about it, and
// its run has ended.
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
			s.logger.Warn("schedule: a claim failed and will be repeated", "job", j.name, "fire", j.fire, "error", err)
		}
		if j.pause == nil {
			j.pause = newBackoff()
		}
		s.put(item{at: s.store.Now().Add(j.pause.Next()), job: j})
	}
}

// attempt claims the job's fire once, and runs it if the claim is granted. An error means
// that nothing was decided.
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

// claim sends one claim through the lease engine.
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
		return nil, &ask{}, err // a: the claim may still be under way, and write to it
	}
	return lease, a, err
}

// won runs a claimed fire and schedules the next one: at once where runs may overlap,
// else when this run has ended.
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

// soon returns when to claim a fire. One that is due already gets no jitter.
func (s *Scheduler) soon(fire time.Time) time.Time {
	if !fire.After(s.store.Now()) {
		return fire
	}
	return s.later(fire)
}

// goOn sets the next fire after the run r has ended. The fires up to skipped were skipped
// for it.
func (j *job) goOn(r Run, skipped, now time.Time) {
	j.fire = j.after(r.Fire)
	if !j.fire.After(r.Began) {
		return // it came due before the run began: it is not overlapped but late, which aim handles
	}
	if !skipped.IsZero() {
		j.fire, j.mark = j.after(skipped), skipped
	}
	if last, came := latest(j.plan, r.Fire, now); came && j.overlap == QueueOne {
		j.fire, j.queued = last, true
	}
}

// lost goes on with the next fire after another process has claimed this one.
func (s *Scheduler) lost(ctx context.Context, j *job, a *ask) {
	s.event(Event{Kind: Passed, Job: j.name, Fire: j.fire})
	now := s.store.Now()
	j.mark, j.sure, j.queued = j.fire, false, false
	j.fire = j.after(j.fire)
	switch {
	case j.missed != All:
	case due(j.fire, now):
		s.setStale(j) // this process fell behind: the document says where to go on
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

// live reports whether a run is under way and has not run out.
func (s State) live() bool {
	return slices.ContainsFunc(s.Runs, func(r Run) bool { return r.ExpireAt.After(s.Now) })
}

// resolve finds out what became of claims whose outcome was unknown. One that is still in
// the document is being undone. If that has failed until the claim ran out, its fire is
// taken over: its run never began.
//
// It reports whether the fire may be claimed; if not, the job was put back in the queue.
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
		j.fire = j.after(j.fire) // another process has decided it
		s.put(item{at: s.soon(j.fire), job: j})
		return false, nil
	}
	return true, nil
}

var (
	errUndoing = errors.New("schedule: an earlier claim is being undone")

	// errAtWork says that the document shows a run under way. It is read again, ever more
	// rarely, until that run is over.
	errAtWork = errors.New("schedule: a run is under way")
)
