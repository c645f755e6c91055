package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

const (
	// wrongBy is how far apart two readings of the store's clock may be before the clock counts
	// as wrong.
	wrongBy = time.Minute

	// A process whose claim was refused reads the job later, in case the due time was given
	// back: after half of the time to the next one, but at most readAfter. If that time is
	// shorter than often, it reads at most every reread.
	readAfter = 15 * time.Second
	often     = 10 * time.Second
	reread    = time.Minute
)

// never stands for the due time after the last one.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// times returns the plan, with the time at which the job was told to run.
func (j *job) times() Plan {
	if asked := j.asked.Load(); asked != 0 {
		return also{j.plan, time.UnixMilli(asked).UTC()}
	}
	return j.plan
}

// after returns the first due time after t.
func (j *job) after(t time.Time) time.Time {
	if n := j.times().Next(t); n.After(t) {
		return n
	}
	return never
}

// serve carries out an item. It returns when the item needs nothing more, and its run has
// ended.
func (s *Scheduler) serve(ctx, runs context.Context, it item) {
	j := it.job
	switch it.task {
	case readAgain:
		s.reread(ctx, it.jobs)
		return
	case repeatRun:
		s.takeOver(ctx, runs, j, it.dead, s.take(j))
		return
	}
	if err := s.attempt(ctx, runs, j); err != nil && ctx.Err() == nil {
		if !errors.Is(err, errAtWork) {
			s.event(Event{Kind: Faulted, Job: j.name, Due: j.due, Err: err})
			if errors.Is(err, store.ErrForeign) {
				s.logForeign(err)
			} else {
				s.logger.Warn("schedule: a claim failed and will be repeated", "job", j.name, "due", j.due, "error", err)
			}
		}
		if j.pause == nil {
			j.pause = newBackoff()
		}
		s.put(item{at: s.store.Now().Add(j.pause.Next()), job: j})
	}
}

// attempt claims the job's due time once, and runs it if the claim is granted. An error means that
// nothing was decided.
func (s *Scheduler) attempt(ctx, runs context.Context, j *job) error {
	if len(j.doubts) > 0 {
		if goOn, err := s.resolve(ctx, runs, j); err != nil || !goOn {
			return err
		}
	}
	if err := s.aim(ctx, j); err != nil {
		return err
	}
	if j.due.After(s.store.Now()) {
		j.pause = nil
		s.await(j)
		return nil
	}
	claim := jobs.Claim{Due: j.due, Attempt: 1, Wait: !j.once, Ahead: s.takeAhead(j)}
	if j.each && claim.Ahead.IsZero() {
		claim.From = j.mark
	}
	lease, won, err := s.claim(ctx, j, claim)
	switch {
	case errors.Is(err, jobs.ErrNotDue):
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
	if won.tracked.claimed.Began.Before(j.due.Add(-wrongBy)) {
		s.tooEarly(j, lease)
		return nil
	}
	s.won(runs, j, won, lease)
	return nil
}

// tooEarly gives back a due time that is far in the future by the reply to its claim. The
// store's clock has stepped back, and the loop reads the job again.
func (s *Scheduler) tooEarly(j *job, lease *mongolock.Lease) {
	s.logger.Warn("schedule: the database's clock has stepped back: a due time was claimed too early, and is given back", "job", j.name, "due", j.due)
	if err := lease.Release(); err != nil {
		s.logger.Warn("schedule: giving back a due time goes on in the background", "job", j.name, "due", j.due, "error", err)
	}
	s.readAnew(j)
}

// claim sends one claim through the client of leases.
func (s *Scheduler) claim(ctx context.Context, j *job, c jobs.Claim) (*mongolock.Lease, *ask, error) {
	if c.Job, c.Shared = j.name, j.beside; c.Dead != nil {
		c.Shared = !c.Dead.Alone // it may be of a time when the job had other options
	}
	c.Next, c.Plan, c.Keep = j.after(c.Due), j.plan.String(), j.keep
	a := &ask{claim: c, repeat: !j.once}
	key := j.name + "@" + c.Due.UTC().Format("2006-01-02T15:04:05.000Z")
	asking := context.WithValue(shown(ctx, j, a), inside.Unresumable{}, errUnresumable)
	lease, err := s.client.TryAcquire(asking, key, j.lease...)
	if err != nil && ctx.Err() != nil {
		return nil, &ask{}, err // not a: the claim may still be under way, and write to it
	}
	return lease, a, err
}

// won runs a claimed due time and schedules the next one: at once if runs may overlap, otherwise
// when this run has ended.
func (s *Scheduler) won(runs context.Context, j *job, a *ask, lease *mongolock.Lease) {
	r := runWith(a.tracked.run(), lease)
	j.mark, j.sure = r.Due, true
	j.due = j.after(r.Due)
	if !s.awaitDue(runs, j, &r) {
		s.await(j)
		return
	}
	late := s.tooLate(j, r)
	s.tellDropped(j, a.tracked.claimed, r, late)
	if j.beside {
		s.await(j)
	} else {
		defer func() {
			j.due = j.after(r.Due) // the job may have been told to run meanwhile
			s.await(j)
		}()
	}
	if late {
		s.finish(runs, j, a.tracked, r, TooLate, nil)
		return
	}
	s.execute(runs, j, a.tracked, r)
}

func runWith(r jobs.Run, lease *mongolock.Lease) Run {
	run := runOf(r)
	run.Lease = lease
	return run
}

// await puts the job back in the queue, for its next due time. One that has come already gets no
// jitter.
func (s *Scheduler) await(j *job) {
	switch now := s.store.Now(); {
	case j.due.After(j.after(now.Add(wrongBy))): // the clock has stepped back since it was chosen
		s.readAnew(j)
	case j.due.After(now):
		s.put(item{at: s.jittered(j, j.due), job: j})
	default:
		s.put(item{at: j.due, job: j})
	}
}

// readAnew makes the loop read the job as if it were new.
func (s *Scheduler) readAnew(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.removed {
		s.fresh = append(s.fresh, j)
		s.nudge()
	}
}

// lost goes on with the next due time after the claim of this one was refused. The process that
// has it may give it back, or a run may be under way and its process die. So this process reads
// the job until it sees that the due time is decided.
func (s *Scheduler) lost(j *job, a *ask) {
	s.event(Event{Kind: Passed, Job: j.name, Due: j.due})
	now := s.store.Now()
	s.setPassed(j, j.due)
	j.mark, j.sure = j.due, false
	j.due = j.after(j.due)
	if j.each && due(j.due, now) {
		s.setStale(j) // this process fell behind: the document says where to go on
	}
	switch gap := j.due.Sub(now); {
	case gap >= often:
		s.readAt(j, now.Add(min(readAfter, gap/2)))
	case !j.once && a.tracked != nil:
		s.readAt(j, now.Add(a.tracked.claim.TTL))
	case now.Sub(j.looked) >= reread:
		j.looked = now
		s.readAt(j, now)
	}
	s.await(j)
}

// live reports whether a run is under way and has not run out.
func live(s jobs.State) bool {
	return slices.ContainsFunc(s.Runs, func(r jobs.Run) bool { return r.ExpireAt.After(s.Now) })
}

// busy reports whether a live run keeps the job's next due time from running.
func (j *job) busy(s jobs.State) bool { return !j.beside && live(s) }

// resolve finds out what became of claims whose outcome was unknown. A claim that is still in
// the document is being undone. If undoing has failed until the claim ran out, its due time is
// taken over: its run never began.
//
// It reports whether the due time may be claimed. If not, the job was put back in the queue.
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
	if state.Known && !state.Decided.Before(j.due) { // another process has decided it, and may give it back
		s.lost(j, new(ask))
		return false, nil
	}
	return true, nil
}

// read reads the job's document, without its past.
func (s *Scheduler) read(ctx context.Context, j *job) (jobs.State, error) {
	all, err := s.store.Read(ctx, []string{j.name}, jobs.WithoutPast)
	if err != nil {
		return jobs.State{}, wrap("read", j.name, err)
	}
	return all[0], nil
}

var (
	errUnresumable = fmt.Errorf("%w: the lease of a job's run cannot be resumed", errors.ErrUnsupported)

	errUndoing = errors.New("schedule: an earlier claim is being undone")

	// errAtWork says that the document shows a run under way. It is read again, ever more rarely, until
	// that is over.
	errAtWork = errors.New("schedule: a run is under way")
)
