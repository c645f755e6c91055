package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock/schedule"
)

// A jobsCheckCmd is `mongolock jobs check`.
type jobsCheckCmd struct {
	Jobs    []string      `arg:"" optional:"" name:"job" help:"Only these, each of which must be known; without one, all."`
	Overdue time.Duration `help:"How late a job may be (default: 15m)." default:"15m" placeholder:"15m"`
	Quiet   bool          `help:"Print nothing if all is well."`
}

// Help says what it finds, and who asks.
func (*jobsCheckCmd) Help() string {
	return `It prints a line on the whole and one for each job that is not well, and exits with the worst:
   0  OK         each job is well
   1  WARNING    the last run of a job did not succeed, or the job is paused, or was claimed by a wrong clock
   2  CRITICAL   a job is overdue or not known, or there is none
   3  UNKNOWN    the jobs, or the plan of one, cannot be read

A job is overdue if its next due time, or the repetition of a run that ended too soon, has waited for
longer than --overdue. A due time also waits for the end of the run before it.

   Nagios        as a plugin, as it is
   cron          */15 * * * *  mongolock jobs check --quiet     # its output is mailed
   Healthchecks  */5 * * * *   said=$(mongolock jobs check); curl -fsS --data-raw "$said" "$PING_URL/$?"`
}

func (c *jobsCheckCmd) check() error {
	var errs []error
	if c.Overdue < 0 {
		errs = append(errs, exitf(exitUsage, "--overdue=%v: must not be negative", c.Overdue))
	}
	for _, name := range c.Jobs {
		errs = append(errs, checkName("JOB", name, jobName))
	}
	return errors.Join(errs...)
}

// A status is how a job is, in the words of Nagios.
type status string

const (
	statusOK       status = "OK"
	statusWarning  status = "WARNING"
	statusUnknown  status = "UNKNOWN"
	statusCritical status = "CRITICAL"
)

// statuses has the exit code of each, and its weight.
var statuses = map[status]struct {
	code, weight int
}{statusOK: {0, 0}, statusWarning: {1, 1}, statusUnknown: {3, 2}, statusCritical: {2, 3}}

// A jobHealth is how one job is.
type jobHealth struct {
	Job       string    `json:"job,omitempty"`
	Status    status    `json:"status"`
	Says      string    `json:"says"`
	Overdue   float64   `json:"overdueSeconds"`
	Tried     time.Time `json:"tried,omitzero"`
	Succeeded time.Time `json:"succeeded,omitzero"`
	Next      time.Time `json:"next,omitzero"`
}

func unread(job, why string) jobHealth { return jobHealth{Job: job, Status: statusUnknown, Says: why} }

// healthOf judges a job of a collection.
func healthOf(s schedule.State, tolerance time.Duration, coll string) jobHealth {
	late := s.Overdue()
	h := jobHealth{Job: s.Job, Status: statusOK, Says: "well", Overdue: late.Seconds(), Tried: s.Tried, Succeeded: s.Succeeded, Next: s.Next}
	say := func(is status, format string, args ...any) { h.Status, h.Says = is, fmt.Sprintf(format, args...) }
	success := "it has not succeeded yet"
	if !s.Succeeded.IsZero() {
		success = "it last succeeded at " + s.Succeeded.UTC().Format(time.RFC3339)
	}
	under := slices.IndexFunc(s.Runs, func(r schedule.Run) bool { return r.ExpireAt.After(s.Now) })
	switch {
	case !s.Known:
		say(statusCritical, "not known in %s: no process has had it", coll)
	case late > tolerance && under >= 0:
		say(statusCritical, "overdue for %s: the run before it has gone on for %s, by %s", span(late), span(s.Now.Sub(s.Runs[under].Began)), s.Runs[under].Owner)
	case late > tolerance:
		say(statusCritical, "overdue for %s: no process runs it; %s", span(late), success)
	case s.PlanErr != nil:
		say(statusUnknown, "%s", reason(s.PlanErr))
	case s.Failing():
		ended := slices.DeleteFunc(slices.Concat(s.Runs, s.Past), func(r schedule.Run) bool { return r.Outcome == "" })
		say(statusWarning, "%s at %s; %s", ended[0].Outcome, ended[0].Ended.UTC().Format(time.RFC3339), success)
		if ended[0].Error != "" {
			h.Says += ": " + ended[0].Error
		}
	case s.Decided.After(s.Now.Add(time.Minute)): // a claim comes less than that before its due time
		say(statusWarning, "claimed for %s, by a clock that was wrong: it waits until then, or for jobs forget", s.Decided.UTC().Format(time.RFC3339))
	case s.Paused:
		say(statusWarning, "paused; %s", success)
	}
	return h
}

// Run checks jobs.
func (c *jobsCheckCmd) Run(a *app) error {
	coll, jobs, err := a.jobs()
	switch code, say := verdict(err); {
	case code == exitUsage:
		return err
	case err != nil:
		return c.tell(a, []jobHealth{unread("", say)})
	}
	return c.tell(a, c.look(a.ctx, jobs, coll.Database().Name()+"."+coll.Name()))
}

// look judges the jobs. What cannot be read is one more.
func (c *jobsCheckCmd) look(ctx context.Context, jobs *schedule.Scheduler, coll string) (all []jobHealth) {
	add := func(s schedule.State, err error) {
		if err != nil {
			all = append(all, unread(s.Job, reason(err)))
			return
		}
		all = append(all, healthOf(s, c.Overdue, coll))
	}
	for _, name := range c.Jobs {
		s, err := jobs.Job(ctx, name)
		s.Job = name
		add(s, err)
	}
	if len(c.Jobs) == 0 {
		jobs.Jobs(ctx)(func(s schedule.State, err error) bool { add(s, err); return true })
	}
	if len(all) == 0 {
		all = []jobHealth{{Status: statusCritical, Says: "there is no job in " + coll}}
	}
	return all
}

// tell prints what was found, the worst first, and exits with its code.
func (c *jobsCheckCmd) tell(a *app, all []jobHealth) error {
	slices.SortStableFunc(all, func(x, y jobHealth) int { return statuses[y.Status].weight - statuses[x.Status].weight })
	worst, ill := all[0], slices.DeleteFunc(slices.Clone(all), func(h jobHealth) bool { return h.Status == statusOK })
	if c.Quiet && len(ill) == 0 {
		return nil
	}
	p := a.printer()
	if !p.asJSON {
		text := fmt.Sprintf("%d well", len(all))
		if len(ill) > 0 {
			text = fmt.Sprintf("%d of %d not well: %s", len(ill), len(all), strings.TrimSpace(worst.Job+" "+worst.Says))
		}
		if err := a.print("JOBS %s: %s", worst.Status, text); err != nil {
			return err
		}
		all = ill
	}
	for _, h := range all {
		if err := p.row(h, h.Job, string(h.Status), h.Says); err != nil {
			return err
		}
	}
	if err := p.flush(); err != nil || len(ill) == 0 {
		return err
	}
	return exitf(statuses[worst.Status].code, "")
}
