package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/schedule"
)

// A jobsCmd is `mongolock jobs`.
type jobsCmd struct {
	Ls     jobsLsCmd     `cmd:"" default:"withargs" help:"List jobs: when each is due next, what runs, how it ended."`
	Check  jobsCheckCmd  `cmd:"" help:"Say whether jobs are overdue, missing or failing; for Nagios, cron and Healthchecks."`
	Run    jobsRunCmd    `cmd:"" help:"Have a process that knows the job run it now."`
	Pause  jobsPauseCmd  `cmd:"" help:"Keep a job from running until it is resumed."`
	Resume jobsResumeCmd `cmd:"" help:"End a pause; what was due meanwhile is not made up."`
	Forget jobsForgetCmd `cmd:"" help:"Delete a job from the database; what runs loses its lease."`
}

// A jobsRunCmd is `mongolock jobs run`, and so on.
type (
	jobsRunCmd struct {
		oneJob
		Wait time.Duration `help:"How long a process may take to begin (default: 35s)." default:"35s" placeholder:"35s"`
	}
	jobsPauseCmd  struct{ oneJob }
	jobsResumeCmd struct{ oneJob }
	jobsForgetCmd struct{ oneJob }
)

type oneJob struct {
	Job string `arg:"" help:"The job's name."`
}

const jobName = 512 // bytes, at most

func (c *oneJob) check() error { return checkName("JOB", c.Job, jobName) }

// jobs returns a scheduler that runs nothing.
func (a *app) jobs() (*mongo.Collection, *schedule.Scheduler, error) {
	coll, err := a.collection("jobs")
	if err != nil {
		return nil, nil, err
	}
	jobs, err := schedule.New(coll, schedule.WithLogger(a.logger()))
	return coll, jobs, err
}

// Help says when it ends.
func (*jobsRunCmd) Help() string {
	return `It waits until a process has begun to run the job, and exits with 67 if none has. Then the job runs as
soon as there is a process that has it. If a run of it is under way, the new one begins when that has
ended, and nothing is waited for.`
}

// Run makes now a due time of the job.
func (c *jobsRunCmd) Run(a *app) error {
	coll, jobs, err := a.jobs()
	if err != nil {
		return err
	}
	before, err := jobs.Job(a.ctx, c.Job)
	if err != nil {
		return err
	}
	if err := known(jobs.RunNow(a.ctx, c.Job), c.Job, coll); err != nil {
		return err
	}
	if len(before.Runs) > 0 {
		a.say("a run of %s is under way, by %s: the new one begins when that has ended", c.Job, before.Runs[0].Owner)
		return nil
	}
	for end := time.Now().Add(c.Wait); time.Now().Before(end) && backoff.Sleep(a.ctx, 250*time.Millisecond); {
		s, err := jobs.Job(a.ctx, c.Job)
		if err != nil {
			return err
		}
		for _, r := range slices.Concat(s.Runs, s.Past) {
			if !r.Began.Before(before.Now) {
				a.teller("").tell("begun", fmt.Sprintf("%s runs, by %s", c.Job, r.Owner), map[string]any{"job": c.Job, "owner": r.Owner})
				return nil
			}
		}
	}
	if a.ctx.Err() != nil {
		return a.ctx.Err()
	}
	last := "none has run it so far"
	if len(before.Past) > 0 {
		last = fmt.Sprintf("the last run was by %s, at %s", before.Past[0].Owner, before.Past[0].Began.UTC().Format(time.RFC3339))
	}
	return exitf(exitNobody, "%s is asked for, but no process has begun it within %v: %s", c.Job, c.Wait, last)
}

// Run pauses the job.
func (c *jobsPauseCmd) Run(a *app) error { return a.tellJob((*schedule.Scheduler).Pause, c.Job) }

// Run resumes the job.
func (c *jobsResumeCmd) Run(a *app) error { return a.tellJob((*schedule.Scheduler).Resume, c.Job) }

// Run forgets the job, also one whose document cannot be read.
func (c *jobsForgetCmd) Run(a *app) error { return a.tellJob((*schedule.Scheduler).Forget, c.Job) }

// tellJob calls a method of a Scheduler for a job.
func (a *app) tellJob(tell func(*schedule.Scheduler, context.Context, string) error, job string) error {
	coll, jobs, err := a.jobs()
	if err != nil {
		return err
	}
	return known(tell(jobs, a.ctx, job), job, coll)
}

// known returns the error of a call about a job.
func known(err error, job string, coll *mongo.Collection) error {
	if errors.Is(err, schedule.ErrUnknown) {
		return exitf(exitNothing, "no job %s is known in %s.%s", job, coll.Database().Name(), coll.Name())
	}
	return err
}

// A jobsLsCmd is `mongolock jobs ls`, or `mongolock jobs`.
type jobsLsCmd struct {
	Job  *string `arg:"" optional:"" help:"Only this job, with all its runs."`
	Last *int    `help:"Show this many past runs of each job (default: 1; all of the job that is named)." placeholder:"N"`
}

func (c *jobsLsCmd) check() error {
	if c.Last != nil && *c.Last < 0 {
		return exitf(exitUsage, "--last=%d: must not be negative", *c.Last)
	}
	if c.Job == nil {
		return nil
	}
	return checkName("JOB", *c.Job, jobName)
}

// Run shows jobs.
func (c *jobsLsCmd) Run(a *app) error {
	coll, jobs, err := a.jobs()
	if err != nil {
		return err
	}
	last := 1
	if c.Job != nil {
		last = math.MaxInt
	}
	if c.Last != nil {
		last = *c.Last
	}
	p := a.table(coll, "job", "plan", "due", "state", "took", "owner", "error")
	if c.Job == nil {
		return each(p, jobs.Jobs(a.ctx), func(s schedule.State) error { return c.one(p, s, last) })
	}
	s, err := jobs.Job(a.ctx, *c.Job)
	if err == nil && !s.Known {
		err = known(schedule.ErrUnknown, *c.Job, coll)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.one(p, s, last), p.flush())
}

// one shows a job: its next due time, the runs under way, the last that ended.
func (c *jobsLsCmd) one(p *printer, s schedule.State, last int) error {
	past := s.Past[:min(last, len(s.Past))]
	if p.asJSON {
		s.Runs, s.Past = slices.Concat([]schedule.Run{}, s.Runs), slices.Concat([]schedule.Run{}, past)
		for _, runs := range [][]schedule.Run{s.Runs, s.Past} {
			for i := range runs {
				runs[i].ID = "" // it gives the same power as the run's lease
			}
		}
		return p.row(s)
	}
	at := func(t time.Time) string {
		if t.IsZero() || t.UnixMilli() == 0 {
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
	rows := [][]cell{{{s.Job, bold}, {s.Plan, plain}, {at(s.Next), plain}, {next, plain}, {}, {}, {}}}
	for _, r := range s.Runs {
		state, took := cell{"running", green}, span(s.Now.Sub(r.Began))
		switch {
		case r.Outcome != "":
			state, took = cell{string(r.Outcome) + ", to be repeated", yellow}, ""
			if !r.Ended.IsZero() {
				took = span(r.Took())
			}
			if r.Again.After(s.Now) {
				state.text += " in " + span(r.Again.Sub(s.Now))
			}
		case !r.ExpireAt.After(s.Now):
			state = cell{"ran out " + span(s.Now.Sub(r.ExpireAt)) + " ago", red}
		}
		rows = append(rows, []cell{{s.Job, bold}, {}, {at(r.Due), plain}, state, {took, plain}, {r.Owner, plain}, attempt(r)})
	}
	for _, r := range past {
		state := cell{string(r.Outcome), green}
		if r.Outcome != schedule.Succeeded {
			state.tone = red
		}
		rows = append(rows, []cell{{s.Job, bold}, {}, {at(r.Due), plain}, state, {span(r.Took()), plain}, {r.Owner, plain}, {r.Error, red}})
	}
	return p.all(rows...)
}

func attempt(r schedule.Run) cell {
	if r.Attempt < 2 {
		return cell{}
	}
	return cell{"attempt " + strconv.Itoa(r.Attempt), yellow}
}
