package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
)

const (
	// missedAfter is how old a fire may be and still run, if missed fires do not run. The
	// jitter and the wait for a worker do not count.
	missedAfter = time.Minute

	// A process whose claim was refused checks later whether the fire was given back: after
	// half of the time to the next fire, but at most lookAfter. If that time is shorter than
	// often, it looks at most every relook.
	lookAfter = 15 * time.Second
	often     = 10 * time.Second
	relook    = time.Minute
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

// serve carries out an item. It returns when the item needs nothing more, and its run has
// ended.
func (s *Scheduler) serve(ctx, runs context.Context, it item) {
	j := it.job
	switch it.task {
	case lookAgain:
		s.look(ctx, it.jobs)
		return
	case repeatRun:
		s.takeOver(ctx, runs, j, it.dead, s.take(j))
		return
	}
	if err := s.attempt(ctx, runs, j, it.ready); err != nil && ctx.Err() == nil {
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

// attempt claims the job's fire once, and runs it if the claim is granted. An error means that
// nothing was decided. ready is when a free worker would have begun.
func (s *Scheduler) attempt(ctx, runs context.Context, j *job, ready time.Time) error {
	if len(j.doubts) > 0 {
		if goOn, err := s.resolve(ctx, runs, j); err != nil || !goOn {
			return err
		}
	}
	if err := s.aim(ctx, j, ready); err != nil {
		return err
	}
	if j.fire.After(s.store.Now()) {
		j.pause = nil
		s.await(j)
		return nil
	}
	claim := Claim{Fire: j.fire, Attempt: 1, Wait: j.death == AtOnce, Ahead: s.takeAhead(j)}
	if j.missed == All && claim.Ahead.IsZero() {
		claim.From = j.mark
	}
	lease, won, err := s.claim(ctx, j, claim)
	switch {
	case errors.Is(err, ErrNotDue):
		j.pause = nil
		s.lost(j, won)
		return nil
	case err != nil:
		if errors.Is(err, mongolock.ErrOutcomeUnknown) && won.tracked != nil {
			j.doubts = append(j.doubts, won.tracked.claim.ID)
		}
		s.setAhead(j, claim.Ahead)
		return err
	}
	j.pause = nil
	if won.tracked.claimed.Began.Before(j.fire.Add(-missedAfter)) {
		s.tooEarly(j, lease)
		return nil
	}
	s.won(runs, j, won, lease)
	return nil
}

// tooEarly gives back a fire that is far in the future by the reply to its claim. The
// store's clock has stepped back, and the loop looks up the job again.
func (s *Scheduler) tooEarly(j *job, lease *mongolock.Lease) {
	s.logger.Warn("schedule: the database's clock has stepped back: a fire was claimed too early, and is given back", "job", j.name, "fire", j.fire)
	if err := lease.Release(); err != nil {
		s.logger.Warn("schedule: giving back a fire goes on in the background", "job", j.name, "fire", j.fire, "error", err)
	}
	s.lookUp(j)
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
	asking := context.WithValue(shown(ctx, j, a), inside.Unresumable{}, errUnresumable)
	lease, err := s.client.TryAcquire(asking, key, opts...)
	if err != nil && ctx.Err() != nil {
		return nil, &ask{}, err // not a: the claim may still be under way, and write to it
	}
	return lease, a, err
}

// won runs a claimed fire and schedules the next one: at once if runs may overlap, otherwise
// when this run has ended.
func (s *Scheduler) won(runs context.Context, j *job, a *ask, lease *mongolock.Lease) {
	r := a.tracked.run()
	r.Lease = lease
	j.mark, j.sure, j.queued = r.Fire, true, false
	if j.overlap == Allow {
		j.fire = j.after(r.Fire)
		s.await(j)
		s.execute(runs, j, a.tracked, r)
		return
	}
	var skipped time.Time
	defer func() {
		j.goOn(r, skipped, s.store.Now())
		s.await(j)
	}()
	skipped = s.execute(runs, j, a.tracked, r)
}

// await puts the job back in the queue, for its next fire. A fire that is due already gets no
// jitter.
func (s *Scheduler) await(j *job) {
	switch now := s.store.Now(); {
	case j.fire.After(j.after(now.Add(missedAfter))): // the clock has stepped back since the fire was chosen
		s.lookUp(j)
	case j.fire.After(now):
		s.put(item{at: s.jittered(j, j.fire), job: j})
	default:
		s.put(item{at: j.fire, job: j})
	}
}

// lookUp makes the loop look up the job as if it were new.
func (s *Scheduler) lookUp(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.removed {
		s.fresh = append(s.fresh, j)
		s.nudge()
	}
}

// goOn sets the next fire after the run r has ended. That run made the job skip the fires up to
// skipped.
func (j *job) goOn(r Run, skipped, now time.Time) {
	j.fire = j.after(r.Fire)
	if !j.fire.After(r.Began) {
		return // it came due before the run began: it does not overlap but is late, which aim handles
	}
	if !skipped.IsZero() {
		j.fire, j.mark = j.after(skipped), skipped
	}
	if last, came := latest(j.plan, r.Fire, now); came && j.overlap == QueueOne {
		j.fire, j.queued = last, true
	}
}

// lost goes on with the next fire after the claim of this one was refused. The process that has
// the fire may give it back, so this process looks once more.
func (s *Scheduler) lost(j *job, a *ask) {
	s.event(Event{Kind: Passed, Job: j.name, Fire: j.fire})
	now := s.store.Now()
	s.setPassed(j, j.fire)
	j.mark, j.sure, j.queued = j.fire, false, false
	j.fire = j.after(j.fire)
	if j.missed == All && due(j.fire, now) {
		s.setStale(j) // this process fell behind: the document says where to go on
	}
	switch gap := j.fire.Sub(now); {
	case gap >= often:
		s.lookAt(j, now.Add(min(lookAfter, gap/2)))
	case j.death == AtOnce && a.tracked != nil:
		s.lookAt(j, now.Add(a.tracked.claim.TTL))
	case now.Sub(j.looked) >= relook:
		j.looked = now
		s.lookAt(j, now)
	}
	s.await(j)
}

// live reports whether a run is under way and has not run out.
func (s State) live() bool {
	return slices.ContainsFunc(s.Runs, func(r Run) bool { return r.ExpireAt.After(s.Now) })
}

// busy reports whether a live run keeps the job's next fire from running.
func (j *job) busy(s State) bool { return j.overlap != Allow && s.live() }

// resolve finds out what became of claims whose outcome was unknown. A claim that is still in
// the document is being undone. If undoing has failed until the claim ran out, its fire is
// taken over: its run never began.
//
// It reports whether the fire may be claimed. If not, the job was put back in the queue.
func (s *Scheduler) resolve(ctx, runs context.Context, j *job) (claim bool, err error) {
	state, err := s.read(ctx, j)
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
		s.await(j)
		return false, nil
	}
	return true, nil
}

// read reads the job's document, without its past.
func (s *Scheduler) read(ctx context.Context, j *job) (State, error) {
	all, err := s.store.Look(ctx, []string{j.name}, WithoutPast)
	if err != nil {
		return State{}, wrap("look at", j.name, err)
	}
	return all[0], nil
}

var (
	errUnresumable = fmt.Errorf("%w: the lease of a job's run cannot be resumed", errors.ErrUnsupported)

	errUndoing = errors.New("schedule: an earlier claim is being undone")

	// errAtWork says that the document shows a run under way. It is read again, ever more
	// rarely, until that run is over.
	errAtWork = errors.New("schedule: a run is under way")
)
