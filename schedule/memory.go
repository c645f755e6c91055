package schedule

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Memory is a Store in memory. It is the reference implementation. It also serves tests of your
// own jobs, in real and in virtual time (package scheduletest). Several Schedulers on one
// Memory behave like several processes on one database.
type Memory struct {
	mu   sync.Mutex // protects jobs; makes each call one step
	jobs map[string]*memoryJob
}

type memoryJob struct {
	plan    string
	next    time.Time
	decided time.Time
	busy    string
	until   time.Time // when busy runs out
	runs    map[string]Run
	past    []Run // the latest last
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{jobs: make(map[string]*memoryJob)} }

// Now returns the process's time, cut to milliseconds as a server's time is.
func (*Memory) Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// Claim takes a fire in one step.
func (m *Memory) Claim(ctx context.Context, c Claim) (Claimed, error) {
	if err := notSent(ctx); err != nil {
		return Claimed{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, sent := m.Now(), time.Now()
	job := m.jobs[c.Job]
	if c.Dead != nil {
		if job == nil || !job.isDead(c, now) {
			return Claimed{}, ErrNotDue
		}
		job.drop(c.Dead.ID, Died, c.Dead.ExpireAt, c.Keep)
	} else {
		if job != nil && job.refuses(c, now) {
			return Claimed{}, ErrNotDue
		}
		if job == nil {
			job = &memoryJob{runs: make(map[string]Run)}
			m.jobs[c.Job] = job
		}
		job.decided, job.next, job.plan = c.Fire, c.Next, c.Plan
	}
	until := now.Add(c.TTL)
	if !c.Shared {
		job.busy, job.until = c.ID, until
	}
	claimed := Claimed{Left: until.Sub(sent), Began: now, Dead: job.dead(now)}
	job.runs[c.ID] = Run{Job: c.Job, ID: c.ID, Fire: c.Fire, Attempt: c.Attempt, Owner: c.Owner, Began: now, ExpireAt: until}
	return claimed, nil
}

func (j *memoryJob) refuses(c Claim, now time.Time) bool {
	switch {
	case !c.Ahead.IsZero() && !j.decided.Equal(c.Ahead):
		return true
	case c.Ahead.IsZero() && !j.decided.Before(c.Fire), j.decided.Before(c.From):
		return true
	case c.Shared || j.busy == "":
		return false
	}
	return c.Wait || j.until.After(now)
}

// isDead reports whether the run that c repeats ran out and has not been replaced.
func (j *memoryJob) isDead(c Claim, now time.Time) bool {
	r, there := j.runs[c.Dead.ID]
	return there && !r.ExpireAt.After(now) && (c.Shared || j.busy == r.ID)
}

// dead lists the runs that ran out.
func (j *memoryJob) dead(now time.Time) []Run {
	var dead []Run
	for _, r := range j.runs {
		if !r.ExpireAt.After(now) {
			dead = append(dead, r)
		}
	}
	return dead
}

// drop moves a run under way to the past.
func (j *memoryJob) drop(id string, outcome Outcome, ended time.Time, keep int) {
	r, there := j.runs[id]
	if !there {
		return
	}
	delete(j.runs, id)
	r.Outcome, r.Ended, r.ExpireAt = outcome, ended, time.Time{}
	j.enter(r, keep)
}

func (j *memoryJob) enter(r Run, keep int) {
	j.past = append(j.past, r)
	j.past = j.past[max(0, len(j.past)-keep):]
}

// in finds a run that has not been replaced, whether it ran out or not.
func (m *Memory) in(r Ref) (*memoryJob, Run, bool) {
	job := m.jobs[r.Job]
	if job == nil {
		return nil, Run{}, false
	}
	run, there := job.runs[r.ID]
	return job, run, there && (r.Shared || job.busy == r.ID)
}

// Renew prolongs a run that has not run out.
func (m *Memory) Renew(ctx context.Context, r Ref, ttl time.Duration) (time.Duration, error) {
	if err := notSent(ctx); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, sent := m.Now(), time.Now()
	job, run, there := m.in(r)
	if !there || !run.ExpireAt.After(now) {
		return 0, store.ErrGone
	}
	if until := now.Add(ttl); until.After(run.ExpireAt) {
		run.ExpireAt = until
	}
	job.runs[r.ID] = run
	if !r.Shared {
		job.until = run.ExpireAt
	}
	return run.ExpireAt.Sub(sent), nil
}

// runOut ends the time of a run, as if it had not been renewed.
func (m *Memory) runOut(job, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[job]
	if j == nil {
		return
	}
	run, there := j.runs[id]
	if !there {
		return
	}
	run.ExpireAt = m.Now()
	j.runs[id] = run
	if j.busy == id {
		j.until = run.ExpireAt
	}
}

// Finish moves a run to its job's past.
func (m *Memory) Finish(ctx context.Context, e End) error {
	if err := notSent(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	job, run, there := m.in(e.Ref)
	if !there {
		return store.ErrGone
	}
	delete(job.runs, e.ID)
	if !e.Shared {
		job.busy = ""
	}
	for _, d := range e.Dead {
		job.drop(d.ID, Died, d.ExpireAt, e.Keep)
	}
	run.Ended, run.Outcome, run.Error, run.ExpireAt = m.Now(), e.Run.Outcome, e.Run.Error, time.Time{}
	job.enter(run, e.Keep)
	if e.Decided.After(job.decided) {
		job.decided = e.Decided
	}
	return nil
}

// Undo always settles, because no call of a Memory goes on after it has returned.
func (m *Memory) Undo(ctx context.Context, c Claim) (settled bool, err error) {
	if err := notSent(ctx); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	job, run, there := m.in(c.Ref)
	if !there {
		return true, nil
	}
	if c.Dead != nil { // as if this run had died too
		run.ExpireAt = run.Began
		job.runs[c.ID], job.until = run, run.Began
		return true, nil
	}
	delete(job.runs, c.ID)
	if !c.Shared {
		job.busy = ""
	}
	if job.decided.Equal(c.Fire) {
		job.decided, job.next = c.Fire.Add(-time.Millisecond), c.Fire
	}
	return true, nil
}

// Look reads all of the jobs at one moment.
func (m *Memory) Look(ctx context.Context, names []string, detail Detail) ([]State, error) {
	if err := notSent(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]State, len(names))
	for i, name := range names {
		all[i] = State{Job: name, Now: m.Now()}
		if j := m.jobs[name]; j != nil {
			all[i] = State{Job: name, Known: true, Plan: j.plan, Decided: j.decided, Next: j.next, Busy: j.busy, Now: m.Now(),
				Runs: slices.SortedFunc(maps.Values(j.runs), byFire)}
			if detail == WithPast {
				all[i].Past = slices.Clone(j.past)
				slices.Reverse(all[i].Past)
			}
		}
	}
	return all, nil
}

func byFire(a, b Run) int {
	return cmp.Or(a.Fire.Compare(b.Fire), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
}

// Names lists the jobs, sorted by their bytes.
func (m *Memory) Names(ctx context.Context) ([]string, error) {
	if err := notSent(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.jobs)), nil
}

// Forget deletes a job with its runs and its past.
func (m *Memory) Forget(ctx context.Context, name string) error {
	if err := notSent(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, name)
	return nil
}

// notSent returns an error if the call's context ended before the call began.
func notSent(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w (%w)", err, store.ErrNotApplied)
	}
	return nil
}
