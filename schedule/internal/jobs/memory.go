package jobs

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

// Memory is a Store in memory. Several Schedulers on one Memory behave like several processes on
// one database.
type Memory struct {
	mu   sync.Mutex // protects jobs; makes each call one step
	jobs map[string]*memoryJob
}

type memoryJob struct {
	plan    string
	next    time.Time
	decided time.Time
	ended   time.Time // the latest due time whose run has ended
	asked   time.Time
	paused  bool
	busy    string
	until   time.Time // when busy runs out
	runs    map[string]Run
	past    []Run // the latest last

	pausedAt, resumedAt time.Time
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{jobs: make(map[string]*memoryJob)} }

// Now returns the process's time, cut to milliseconds as a server's time is.
func (*Memory) Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// Claim takes a due time in one step.
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
		job.drop(c.Dead.ID, c.Dead.ExpireAt, c.Keep)
	} else {
		if job != nil && job.refuses(c, now) {
			return Claimed{}, ErrNotDue
		}
		if job == nil {
			job = &memoryJob{runs: make(map[string]Run)}
			m.jobs[c.Job] = job
		}
		if !c.Ahead.IsZero() {
			job.ended = c.Due // what ended until then was decided by a wrong clock
		}
		job.decided, job.next, job.plan = c.Due, c.Next, c.Plan
	}
	before := job.ended
	for _, r := range job.runs {
		if r.Due.After(before) {
			before = r.Due
		}
	}
	until := now.Add(c.TTL)
	if !c.Shared {
		job.busy, job.until = c.ID, until
	}
	claimed := Claimed{Left: until.Sub(sent), Began: now, Before: before, Dead: job.dead(now), Paused: job.pausedAt, Resumed: job.resumedAt, Asked: job.asked}
	job.runs[c.ID] = Run{Job: c.Job, ID: c.ID, Due: c.Due, Attempt: c.Attempt, Owner: c.Owner, Began: now, ExpireAt: until}
	return claimed, nil
}

func (j *memoryJob) refuses(c Claim, now time.Time) bool {
	switch {
	case j.paused:
		return true
	case !c.Ahead.IsZero() && !j.decided.Equal(c.Ahead):
		return true
	case c.Ahead.IsZero() && !j.decided.Before(c.Due), j.decided.Before(c.From):
		return true
	case c.Shared || j.busy == "":
		return false
	}
	return c.Wait || j.until.After(now)
}

// isDead reports whether the run that c repeats ran out and has not been replaced.
func (j *memoryJob) isDead(c Claim, now time.Time) bool {
	r, there := j.runs[c.Dead.ID]
	return there && !j.paused && !r.ExpireAt.After(now) && (c.Shared || j.busy == r.ID)
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

// drop moves a run that ran out to the past.
func (j *memoryJob) drop(id string, ended time.Time, keep int) {
	r, there := j.runs[id]
	if !there {
		return
	}
	delete(j.runs, id)
	r.Outcome, r.Ended, r.ExpireAt = r.outcomeOfDead(), ended, time.Time{}
	j.enter(r, keep)
}

func (j *memoryJob) enter(r Run, keep int) {
	if r.Due.After(j.ended) {
		j.ended = r.Due
	}
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

// RunOut ends the time of a run, for package scheduletest alone.
func (m *Memory) RunOut(job, id string) {
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
		job.drop(d.ID, d.ExpireAt, e.Keep)
	}
	run.Ended, run.Outcome, run.Error, run.ExpireAt = m.Now(), e.Run.Outcome, e.Run.Error, time.Time{}
	job.enter(run, e.Keep)
	return nil
}

// Leave makes a run look as if its process had died.
func (m *Memory) Leave(ctx context.Context, e End) error {
	if err := notSent(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	job, run, there := m.in(e.Ref)
	if !there {
		return store.ErrGone
	}
	run.Outcome, run.Error, run.ExpireAt = e.Run.Outcome, e.Run.Error, m.Now()
	job.runs[e.ID] = run
	if !e.Shared {
		job.until = run.ExpireAt
	}
	return nil
}

// Register makes a job.
func (m *Memory) Register(ctx context.Context, name, plan string, now, next time.Time) error {
	if err := notSent(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.jobs[name] == nil {
		m.jobs[name] = &memoryJob{plan: plan, decided: now, ended: now, next: next, runs: make(map[string]Run)}
	}
	return nil
}

// Change changes a job in one step.
func (m *Memory) Change(ctx context.Context, name string, change Change) (changed bool, err error) {
	if err := notSent(ctx); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[name]
	if j == nil {
		return false, nil
	}
	now := m.Now()
	switch change {
	case AskRun:
		if j.paused {
			return false, nil
		}
		j.asked = now
	case Pause:
		if !j.paused {
			j.paused, j.pausedAt = true, now
		}
	case Resume:
		if !j.paused {
			return false, nil
		}
		j.paused, j.resumedAt = false, now
		j.decided = latest(j.decided, now)
	}
	return true, nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Asked looks through the jobs.
func (m *Memory) Asked(ctx context.Context, names []string, since time.Time) (map[string]time.Time, error) {
	if err := notSent(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := make(map[string]time.Time)
	for _, name := range names {
		if j := m.jobs[name]; j != nil && j.asked.After(since) {
			asked[name] = j.asked
		}
	}
	return asked, nil
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
	if c.Dead != nil { // as if the run that it repeats had just died, or been stopped
		run.ExpireAt, run.Attempt, run.Outcome = run.Began, c.Attempt-1, c.Dead.Outcome
		job.runs[c.ID], job.until = run, run.Began
		return true, nil
	}
	delete(job.runs, c.ID)
	if !c.Shared {
		job.busy = ""
	}
	if job.decided.Equal(c.Due) {
		job.decided, job.next = c.Due.Add(-time.Millisecond), c.Due
	}
	return true, nil
}

// Read reads all of the jobs at one moment.
func (m *Memory) Read(ctx context.Context, names []string, detail Detail) ([]State, error) {
	if err := notSent(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]State, len(names))
	for i, name := range names {
		all[i] = State{Job: name, Now: m.Now()}
		if j := m.jobs[name]; j != nil {
			all[i] = State{Job: name, Known: true, Plan: j.plan, Decided: j.decided, Next: j.next, Asked: j.asked, Paused: j.paused, Busy: j.busy, Now: m.Now(),
				Runs: slices.SortedFunc(maps.Values(j.runs), byDue)}
			for n := range all[i].Runs {
				all[i].Runs[n].Alone = all[i].Runs[n].ID == j.busy
			}
			if detail == WithPast {
				all[i].Past = slices.Clone(j.past)
				slices.Reverse(all[i].Past)
			}
		}
	}
	return all, nil
}

func byDue(a, b Run) int {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
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
