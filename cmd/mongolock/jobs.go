package main

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/mongolock/mongolock/schedule"
)

// A jobsCmd is `mongolock jobs`.
type jobsCmd struct {
	Ls     jobsLsCmd     `cmd:"" default:"withargs" help:"List jobs: when each is due next, what runs, how it ended."`
	Run    jobsRunCmd    `cmd:"" help:"Have a process that knows the job run it now."`
	Pause  jobsPauseCmd  `cmd:"" help:"Keep a job from running until it is resumed."`
	Resume jobsResumeCmd `cmd:"" help:"End a pause; what was due meanwhile is not made up."`
	Forget jobsForgetCmd `cmd:"" help:"Delete a job from the database; what runs loses its lease."`
}

// A jobsRunCmd is `mongolock jobs run`, and so on.
type (
	jobsRunCmd    struct{ oneJob }
	jobsPauseCmd  struct{ oneJob }
	jobsResumeCmd struct{ oneJob }
	jobsForgetCmd struct{ oneJob }
)

type oneJob struct {
	Job string `arg:"" help:"The job's name."`
}

// Run makes now a due time of the job.
func (c *jobsRunCmd) Run(a *app) error { return a.tellJob((*schedule.Scheduler).RunNow, c.Job) }

// Run pauses the job.
func (c *jobsPauseCmd) Run(a *app) error { return a.tellJob((*schedule.Scheduler).Pause, c.Job) }

// Run resumes the job.
func (c *jobsResumeCmd) Run(a *app) error { return a.tellJob((*schedule.Scheduler).Resume, c.Job) }

// Run forgets the job, also one whose document cannot be read.
func (c *jobsForgetCmd) Run(a *app) error { return a.tellJob((*schedule.Scheduler).Forget, c.Job) }

// tellJob calls a method of a Scheduler for a job.
func (a *app) tellJob(tell func(*schedule.Scheduler, context.Context, string) error, job string) error {
	ctx := context.Background()
	d, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	jobs, err := schedule.New(d.collection(&a.connection, "jobs"), schedule.WithLogger(a.logger()))
	if err != nil {
		return err
	}
	err = tell(jobs, ctx, job)
	if errors.Is(err, schedule.ErrUnknown) {
		return exitf(exitNothing, "no job %s is known", shown(job))
	}
	return err
}

// A jobsLsCmd is `mongolock jobs ls`, or `mongolock jobs`.
type jobsLsCmd struct {
	Job  string `arg:"" optional:"" help:"Only this job, with all its runs."`
	Last *int   `help:"Show this many past runs of each job (default: 1; all of the job that is named)." placeholder:"N"`
}

type jobView struct {
	Job     string         `json:"job"`
	Plan    string         `json:"plan"`
	Next    time.Time      `json:"next,omitzero"`
	Decided time.Time      `json:"decided,omitzero"`
	Paused  bool           `json:"paused"`
	Running []schedule.Run `json:"running"`
	Past    []schedule.Run `json:"past"`
	Now     time.Time      `json:"now"`
}

// Run shows jobs.
func (c *jobsLsCmd) Run(a *app) error {
	last := 1
	if c.Job != "" {
		last = math.MaxInt
	}
	if c.Last != nil {
		last = *c.Last
	}
	if last < 0 {
		return exitf(exitUsage, "--last=%d: must not be negative", last)
	}
	ctx := context.Background()
	d, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	jobs, err := schedule.New(d.collection(&a.connection, "jobs"), schedule.WithLogger(a.logger()))
	if err != nil {
		return err
	}
	p := a.printer("job", "plan", "due", "state", "took", "owner", "error")
	if c.Job != "" {
		s, err := jobs.Job(ctx, c.Job)
		if err != nil {
			return err
		}
		if !s.Known {
			return exitf(exitNothing, "no job %s is known", shown(c.Job))
		}
		if err := c.one(p, s, last); err != nil {
			return err
		}
		return p.flush()
	}
	p.none = func() { a.nothing(ctx, d.collection(&a.connection, "jobs")) }
	for s, err := range jobs.Jobs(ctx) {
		if err == nil {
			err = c.one(p, s, last)
		}
		if err != nil {
			return err
		}
	}
	return p.flush()
}

// one shows a job: its next due time, the runs under way, the last that ended.
func (c *jobsLsCmd) one(p *printer, s schedule.State, last int) error {
	past := s.Past[:min(last, len(s.Past))]
	if p.asJSON {
		v := jobView{s.Job, s.Plan, s.Next, s.Decided, s.Paused, append([]schedule.Run{}, s.Runs...), append([]schedule.Run{}, past...), s.Now}
		for _, runs := range [][]schedule.Run{v.Running, v.Past} {
			for i := range runs {
				runs[i].ID = "" // it gives the same power as the run's lease
			}
		}
		return p.row(v)
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format("2006-01-02 15:04:05")
	}
	next := "no more"
	if !s.Next.IsZero() {
		next = "next, in " + span(s.Next.Sub(s.Now))
		if s.Next.Before(s.Now) {
			next = "next, overdue for " + span(s.Now.Sub(s.Next))
		}
	}
	if s.Paused {
		next = "paused"
	}
	rows := [][]cell{{{shown(s.Job), bold}, {shown(s.Plan), plain}, {at(s.Next), plain}, {next, plain}, {}, {}, {}}}
	for _, r := range s.Runs {
		state := cell{"running", green}
		switch {
		case r.Outcome != "":
			state = cell{string(r.Outcome) + ", to be repeated", yellow}
		case !r.ExpireAt.After(s.Now):
			state = cell{"ran out " + span(s.Now.Sub(r.ExpireAt)) + " ago", red}
		}
		rows = append(rows, []cell{{shown(s.Job), bold}, {}, {at(r.Due), plain}, state, {span(s.Now.Sub(r.Began)), plain}, {shown(r.Owner), plain}, attempt(r)})
	}
	for _, r := range past {
		state := cell{string(r.Outcome), green}
		if r.Outcome != schedule.Succeeded {
			state.tone = red
		}
		rows = append(rows, []cell{{shown(s.Job), bold}, {}, {at(r.Due), plain}, state, {span(r.Took()), plain}, {shown(r.Owner), plain}, {shown(r.Error), red}})
	}
	for _, row := range rows {
		if err := p.row(nil, row...); err != nil {
			return err
		}
	}
	return nil
}

func attempt(r schedule.Run) cell {
	if r.Attempt < 2 {
		return cell{}
	}
	return cell{"attempt " + strconv.Itoa(r.Attempt), yellow}
}
