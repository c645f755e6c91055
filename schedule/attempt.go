package schedule

import (
	"context"
	"errors"
	"fmt"
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
	// shorter than often, it reads at most once a TTL, or every reread.
	readAfter = 15 * time.Second
	often     = 10 * time.Second
	reread    = time.Minute
)

// never stands for the due time after the last one.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// times returns the plans, with the time at which the job was told to run.
func (j *job) times() Plan {
	if asked := j.asked.Load(); asked != 0 {
		return also{j.plans, time.UnixMilli(asked).UTC()}
	}
	return j.plans
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
	switch it.task {
	case readAgain:
		s.reread(ctx, it.jobs)
	case repeatRun:
		s.repeat(ctx, runs, it.job, it.dead, it.seq)
	case claimNext:
		if err := s.attempt(ctx, runs, it.job); err != nil {
			s.tryLater(ctx, it.job, err)
		}
	}
}

// tryLater puts a job back that could not be read or claimed.
func (s *Scheduler) tryLater(ctx context.Context, j *job, err error) {
	s.setStale(j)
	if j.pause == nil {
		j.pause = newBackoff()
	}
	pause := j.pause.Next()
	switch {
	case ctx.Err() != nil, errors.Is(err, errRemoved):
		return
	case errors.Is(err, ErrPlan):
		pause = pollEvery
		s.logger.Error("schedule: a job is left to other processes", "error", err)
		s.event(Event{Kind: Faulted, Job: j.name, Err: err})
	case errors.Is(err, errAtWork), errors.Is(err, jobs.ErrNotDue):
	default:
		s.event(Event{Kind: Faulted, Job: j.name, Due: j.due, Err: err})
		if errors.Is(err, store.ErrForeign) {
			s.logForeign(err)
		} else {
			s.logger.Warn("schedule: a claim failed and will be repeated", "job", j.name, "due", j.due, "error", err)
		}
	}
	s.put(item{at: s.store.Now().Add(pause), job: j})
}

// attempt claims the job's due time once, and runs it if the claim is granted. An error means that
// nothing was decided.
func (s *Scheduler) attempt(ctx, runs context.Context, j *job) error {
	if now := s.store.Now(); s.takeStale(j) || !j.sure && due(j.after(j.due), now) {
		if err := s.look(ctx, j); err != nil {
			return err
		}
		if j.due.After(s.store.Now()) { // the job is paused
			s.await(j)
			return nil
		}
	}
	mark, turn := j.mark, j.due
	if !j.sure && j.losses%2 == 0 { // perhaps not all were taken, but a run was under way: at all, or from the first on
		mark = j.known[j.losses/2%2]
	}
	p := j.pick(mark, s.store.Now(), s.jitter)
	if j.due = p.due; j.due.After(s.store.Now()) {
		j.pause = nil
		s.await(j)
		return nil
	}
	asked := time.Time{}
	if at := j.asked.Load(); at != 0 {
		asked = time.UnixMilli(at).UTC()
	}
	lease, a, err := s.claim(ctx, j, jobs.Claim{Edition: j.edition, Mark: mark, First: p.first, Ahead: j.ahead, Asked: asked,
		Run: jobs.Run{Due: p.due, Attempt: 1, Verdict: string(p.verdict), Drops: p.drops}})
	switch {
	case errors.Is(err, jobs.ErrNotDue):
		j.pause, j.due = nil, later(turn, p.due)
		s.lost(j, a)
		return nil
	case err != nil:
		return err
	}
	j.pause = nil
	if a.claimed.Began.Before(j.due.Add(-wrongBy)) {
		s.tooEarly(j, lease)
		return nil
	}
	j.mark, j.sure, j.ahead = p.due, true, time.Time{}
	if j.beside {
		j.due = j.after(p.due)
		s.await(j)
		s.carryOut(runs, j, a, lease)
		return nil
	}
	defer func() {
		j.due = j.after(p.due) // the job may have been told to run meanwhile
		s.await(j)
	}()
	s.carryOut(runs, j, a, lease)
	return nil
}

// look reads the job before a claim. Unless it runs beside others, all that are open are over first.
func (s *Scheduler) look(ctx context.Context, j *job) error {
	all, err := s.store.Read(ctx, []string{j.name}, jobs.WithoutPast)
	if err != nil {
		return wrap("read", j.name, err)
	}
	seen, err := s.learn(ctx, j, all[0])
	if err != nil {
		return err
	}
	s.watch(j, seen)
	if j.due = j.pick(j.mark, s.store.Now(), s.jitter).due; seen.Paused {
		j.due = j.after(s.store.Now())
	} else if j.busy(seen) {
		return errAtWork
	}
	return nil
}

// busy reports whether an open run keeps the job's next due time from running.
func (j *job) busy(s jobs.State) bool { return !j.beside && len(s.Runs) > 0 }

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
	c.Job, c.Alone, c.Keep = j.name, !j.beside, j.keep
	a := &ask{claim: c}
	key := j.name + "@" + c.Run.Due.UTC().Format("2006-01-02T15:04:05.000Z")
	asking := context.WithValue(shown(ctx, j, a), inside.Unresumable{}, errUnresumable)
	lease, err := s.client.TryAcquire(asking, key, j.lease...)
	if err != nil && ctx.Err() != nil {
		return nil, &ask{}, err // not a: the claim may still be under way, and write to it
	}
	return lease, a, err
}

// carryOut begins a run that was claimed, or ends it at once by its verdict.
func (s *Scheduler) carryOut(runs context.Context, j *job, a *ask, lease *mongolock.Lease) {
	r := runOf(a.tracked.run())
	r.Lease = lease
	verdict, drops := Outcome(a.claim.Run.Verdict), a.claim.Run.Drops
	if verdict != "" {
		r.Began = later(r.Began, r.Due)
	}
	if !s.awaitDue(runs, j, &r) {
		return
	}
	if verdict == "" && r.Attempt == 1 && a.claim.Dead == nil && j.tooLate(r.Due, r.Began, s.jitter) { // the claim took long
		verdict = TooLate
		drops = append(drops, jobs.Drop{First: r.Due, Last: r.Due, Count: 1, Why: tooOld})
	}
	for _, d := range drops {
		s.tellDropped(j, d)
	}
	s.runs.told(r.ID)
	switch {
	case verdict != "":
		s.finish(runs, j, a.tracked, r, verdict, nil)
	case len(drops) > 0:
		_ = r.Lease.Renew(runs) // notes that they are told; if it fails, the next renewal does
		fallthrough
	default:
		s.execute(runs, j, a.tracked, r)
	}
}

// await puts the job back in the queue, for its next due time. One that has come already gets no
// jitter.
func (s *Scheduler) await(j *job) {
	now := s.store.Now()
	next := j.after(now.Add(wrongBy))
	switch {
	case s.isStale(j):
		s.put(item{at: now, job: j})
	case j.mark.After(now.Add(wrongBy)): // a clock was wrong: the document may be mended meanwhile
		s.setStale(j)
		s.put(item{at: later(j.after(now), now.Add(often)), job: j})
	case j.due.After(next): // the clock has stepped back since it was chosen
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
// the job.
func (s *Scheduler) lost(j *job, a *ask) {
	s.event(Event{Kind: Passed, Job: j.name, Due: j.due})
	now := s.store.Now()
	if j.sure {
		j.known, j.losses = [2]time.Time{j.mark, j.due}, 0
	}
	j.losses++
	j.mark, j.sure = j.due, false // most likely
	j.due = j.after(j.due)
	if j.each && due(j.due, now) {
		s.setStale(j) // this process fell behind: the document says where to go on
	}
	switch gap := j.due.Sub(now); {
	case gap >= often:
		s.readAt(j, now.Add(min(readAfter, gap/2)))
	case a.tracked != nil:
		s.readAt(j, now.Add(a.tracked.claim.TTL))
	case now.Sub(j.looked) >= reread:
		j.looked = now
		s.readAt(j, now)
	}
	s.await(j)
}

var (
	errUnresumable = fmt.Errorf("%w: the lease of a job's run cannot be resumed", errors.ErrUnsupported)

	// errAtWork says that the document shows a run that is not over. It is read again, ever more rarely,
	// until it is.
	errAtWork = errors.New("schedule: a run is under way")
)
