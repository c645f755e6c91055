package main

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/mongo"

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
	jobsRunCmd    struct{ oneJob }
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

// Help says when it runs.
func (*jobsRunCmd) Help() string {
	return `The job runs as soon as a process that has it takes it up, and after a run of it that is under way.
mongolock jobs JOB shows whether one has.`
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
	Job *string `arg:"" optional:"" help:"Only this job, with all its runs."`
}

func (c *jobsLsCmd) check() error {
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
	p := a.table(coll, "job", "plan", "due", "state", "took", "owner", "error")
	if c.Job == nil {
		return each(p, jobs.Jobs(a.ctx), func(s schedule.State) error { return c.one(p, s, s.Past[:min(1, len(s.Past))]) })
	}
	s, err := jobs.Job(a.ctx, *c.Job)
	if err == nil && !s.Known {
		err = known(schedule.ErrUnknown, *c.Job, coll)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.one(p, s, s.Past), p.flush())
}

// one shows a job: its next due time, the runs under way, and some that ended.
func (c *jobsLsCmd) one(p *printer, s schedule.State, past []schedule.Run) error {
	if p.asJSON {
		s.Runs, s.Past = slices.Concat([]schedule.Run{}, s.Runs), slices.Concat([]schedule.Run{}, past)
		for _, runs := range [][]schedule.Run{s.Runs, s.Past} {
			for i := range runs {
				runs[i].ID = "" // it gives the same power as the run's lease
			}
		}
		return p.row(s)
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
	rows := [][]string{{s.Job, s.Plan, moment(s.Next), next, "", "", ""}}
	for _, r := range s.Runs {
		state, took, attempt := "running", span(s.Now.Sub(r.Began)), ""
		switch {
		case r.Outcome != "":
			state, took = string(r.Outcome)+", to be repeated", ""
			if !r.Ended.IsZero() {
				took = span(r.Took())
			}
			if r.Again.After(s.Now) {
				state += " in " + span(r.Again.Sub(s.Now))
			}
		case !r.ExpireAt.After(s.Now):
			state = "ran out " + span(s.Now.Sub(r.ExpireAt)) + " ago"
		}
		if r.Attempt > 1 {
			attempt = "attempt " + strconv.Itoa(r.Attempt)
		}
		rows = append(rows, []string{s.Job, "", moment(r.Due), state, took, r.Owner, attempt})
	}
	for _, r := range past {
		rows = append(rows, []string{s.Job, "", moment(r.Due), string(r.Outcome), span(r.Took()), r.Owner, r.Error})
	}
	return p.all(rows...)
}
