package jobs

import (
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
	State    // without Runs, Past and Now
	pausedAt time.Time
	runs     map[string]Run
	past     []Run // the latest last
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{jobs: make(map[string]*memoryJob)} }

// Now returns the process's time, cut to milliseconds as a server's time is.
func (*Memory) Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// in makes a call one step. f gets a nil job if there is none.
func (m *Memory) in(ctx context.Context, name string, f func(j *memoryJob, now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w (%w)", err, store.ErrNotApplied)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(m.jobs[name], m.Now())
}

// onRun is in for a run that is open.
func (m *Memory) onRun(ctx context.Context, r Ref, f func(j *memoryJob, run Run, now time.Time) error) error {
	return m.in(ctx, r.Job, func(j *memoryJob, now time.Time) error {
		if j == nil {
			return store.ErrGone
		}
		run, open := j.runs[r.ID]
		if !open {
			return store.ErrGone
		}
		return f(j, run, now)
	})
}

// Claim takes a due time, or repeats a run.
func (m *Memory) Claim(ctx context.Context, c Claim) (won Claimed, err error) {
	sent := time.Now()
	err = m.in(ctx, c.Job, func(j *memoryJob, now time.Time) error {
		if j == nil || j.Paused || !j.grants(c, now) {
			return ErrNotDue
		}
		if c.Dead == nil {
			j.Decided = c.Run.Due
		} else {
			dead := j.runs[c.Dead.ID]
			if delete(j.runs, c.Dead.ID); c.Enter {
				j.Seq++
				dead.Number = j.Seq
				j.enter(dead.asDead(), c.Keep)
			}
		}
		j.Seq++
		j.Tried = now
		run := c.Run
		run.Job, run.ID, run.ExpireAt = c.Job, c.ID, now.Add(c.TTL)
		if run.Began.IsZero() {
			run.Began = now
		}
		j.runs[c.ID] = run
		won = Claimed{Left: run.ExpireAt.Sub(sent), Began: now, Number: j.Seq}
		return nil
	})
	return won, err
}

func (j *memoryJob) grants(c Claim, now time.Time) bool {
	over := func(r Run) bool { return !r.ExpireAt.After(now) }
	if c.Dead != nil {
		dead, open := j.runs[c.Dead.ID]
		open = open && dead.ExpireAt.Equal(c.Dead.ExpireAt) && dead.Ended.Equal(c.Dead.Ended) // as it was seen
		if c.Alone {
			for _, r := range j.runs {
				open = open && over(r)
			}
		}
		return open && over(dead) && (!c.Enter || c.Seq == j.Seq)
	}
	switch {
	case j.Edition != c.Edition, c.Alone && len(j.runs) > 0, c.Run.Verdict != "" && !j.Asked.Equal(c.Asked):
		return false
	case !c.Ahead.IsZero():
		return j.Decided.Equal(c.Ahead)
	}
	return !j.Decided.Before(c.Mark) && j.Decided.Before(c.First)
}

func (j *memoryJob) enter(r Run, keep int) {
	j.past = append(j.past, r.past())
	j.past = j.past[max(0, len(j.past)-keep):]
}

// Renew prolongs a run that has not run out.
func (m *Memory) Renew(ctx context.Context, r Ref, ttl time.Duration, begun bool) (left time.Duration, err error) {
	sent := time.Now()
	err = m.onRun(ctx, r, func(j *memoryJob, run Run, now time.Time) error {
		if !run.ExpireAt.After(now) {
			return store.ErrGone
		}
		if until := now.Add(ttl); until.After(run.ExpireAt) {
			run.ExpireAt = until
		}
		if begun {
			run.Begun, run.Drops = true, nil
		}
		j.runs[r.ID], left = run, run.ExpireAt.Sub(sent)
		return nil
	})
	return left, err
}

// RunOut ends the time of a run, for package scheduletest alone.
func (m *Memory) RunOut(job, id string) {
	_ = m.onRun(context.Background(), Ref{job, id}, func(j *memoryJob, run Run, now time.Time) error {
		run.ExpireAt = now
		j.runs[id] = run
		return nil
	})
}

// End moves a run to its job's past, or leaves it.
func (m *Memory) End(ctx context.Context, e End) error {
	return m.onRun(ctx, e.Ref, func(j *memoryJob, run Run, now time.Time) error {
		if !e.Run.Again.IsZero() {
			run = run.left(e.Run.Outcome, e.Run.Error, now, e.Run.Again)
			run.Drops = nil
			j.runs[e.ID] = run
			return nil
		}
		delete(j.runs, e.ID)
		if e.Run.Ended = now; e.Run.Outcome == Succeeded {
			j.Succeeded = now
		}
		j.enter(e.Run, e.Keep)
		return nil
	})
}

// Undo always settles, because no call of a Memory goes on after it has returned.
func (m *Memory) Undo(ctx context.Context, c Claim) (settled bool, err error) {
	err = m.onRun(ctx, c.Ref, func(j *memoryJob, run Run, now time.Time) error {
		if c.Back && j.Decided.Equal(c.Run.Due) {
			delete(j.runs, c.ID)
			j.Decided = c.Mark
			return nil
		}
		j.runs[c.ID] = run.left(Unbegun, "", now, now)
		return nil
	})
	if err == store.ErrGone { //nolint:errorlint // as onRun returns it
		err = nil
	}
	return err == nil, err
}

// Register makes a job.
func (m *Memory) Register(ctx context.Context, name, plan string, now time.Time) (seen State, err error) {
	err = m.in(ctx, name, func(j *memoryJob, clock time.Time) error {
		if j == nil {
			j = &memoryJob{runs: make(map[string]Run), State: State{Job: name, Known: true, Edition: 1, Decided: now, Seq: now.UnixMilli(), Plans: []Span{{plan, now}}}}
			m.jobs[name] = j
		}
		seen = j.seen(clock)
		return nil
	})
	return seen, err
}

// Plan replaces a job's plans.
func (m *Memory) Plan(ctx context.Context, seen State, plans []Span) error {
	return m.in(ctx, seen.Job, func(j *memoryJob, now time.Time) error {
		if j == nil || j.Edition != seen.Edition || !j.Decided.Equal(seen.Decided) {
			return ErrNotDue
		}
		j.Plans, j.Edition, j.Changed = slices.Clone(plans), j.Edition+1, now
		return nil
	})
}

// Change changes a job in one step.
func (m *Memory) Change(ctx context.Context, name string, change Change) (changed bool, err error) {
	err = m.in(ctx, name, func(j *memoryJob, now time.Time) error {
		switch {
		case j == nil, change == AskRun && j.Paused, change == Resume && !j.Paused:
			return nil
		case change == Forget:
			delete(m.jobs, name)
		case change == AskRun:
			j.Asked = now
		case change == Resume:
			j.Plans, j.Paused = resumed(j.Plans, j.pausedAt, now), false
			j.Edition++
		case !j.Paused:
			j.Paused, j.pausedAt = true, now
		}
		j.Changed, changed = now, true
		return nil
	})
	return changed, err
}

// Changed looks through the jobs.
func (m *Memory) Changed(ctx context.Context, names []string, since time.Time) (map[string]time.Time, error) {
	changed := make(map[string]time.Time)
	return changed, m.in(ctx, "", func(*memoryJob, time.Time) error {
		for _, name := range names {
			if j := m.jobs[name]; j != nil && j.State.Changed.After(since) {
				changed[name] = j.State.Changed
			}
		}
		return nil
	})
}

func (j *memoryJob) seen(now time.Time) State {
	s := j.State
	s.Runs, s.Now = slices.SortedFunc(maps.Values(j.runs), byDue), now
	return s
}

// Read reads all of the jobs at one moment.
func (m *Memory) Read(ctx context.Context, names []string, detail Detail) ([]State, error) {
	all := make([]State, len(names))
	err := m.in(ctx, "", func(_ *memoryJob, now time.Time) error {
		for i, name := range names {
			all[i].Job = name
			if j := m.jobs[name]; j != nil {
				all[i] = j.seen(now)
				if detail == WithPast {
					all[i].Past = slices.Clone(j.past)
					slices.Reverse(all[i].Past)
				}
			}
			all[i].Now = now
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Names lists the jobs, sorted by their bytes.
func (m *Memory) Names(ctx context.Context) (names []string, err error) {
	err = m.in(ctx, "", func(*memoryJob, time.Time) error {
		names = slices.Sorted(maps.Keys(m.jobs))
		return nil
	})
	return names, err
}
