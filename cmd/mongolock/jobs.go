package main

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/mongolock/mongolock/schedule"
)

// A jobsCmd is `mongolock jobs`.
type jobsCmd struct {
	Job  string `arg:"" optional:"" help:"Only this job, with its past."`
	Last *int   `help:"How many of the runs that ended to show; by default one of each job, or all of the one that is named." placeholder:"N"`
}

type jobView struct {
	Job     string         `json:"job"`
	Plan    string         `json:"plan"`
	Next    time.Time      `json:"next,omitzero"`
	Decided time.Time      `json:"decided,omitzero"`
	Running []schedule.Run `json:"running"`
	Past    []schedule.Run `json:"past"`
	Now     time.Time      `json:"now"`
}

// Run shows jobs.
func (c *jobsCmd) Run(a *app) error {
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

// one shows a job: its next fire, the runs under way, the last that ended.
func (c *jobsCmd) one(p *printer, s schedule.State, last int) error {
	past := s.Past[:min(last, len(s.Past))]
	if p.asJSON {
		v := jobView{s.Job, s.Plan, s.Next, s.Decided, append([]schedule.Run{}, s.Runs...), append([]schedule.Run{}, past...), s.Now}
		for _, runs := range [][]schedule.Run{v.Running, v.Past} {
			for i := range runs {
				runs[i].ID = "" // it gives the same power as the run's lease
			}
		}
		return p.row(v)
	}
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }
	next := "no more"
	if !s.Next.IsZero() {
		next = "next, in " + span(s.Next.Sub(s.Now))
		if s.Next.Before(s.Now) {
			next = "next, overdue for " + span(s.Now.Sub(s.Next))
		}
	}
	rows := [][]cell{{{shown(s.Job), bold}, {shown(s.Plan), plain}, {at(s.Next), plain}, {next, plain}, {}, {}, {}}}
	for _, r := range s.Runs {
		state := cell{"running", green}
		if !r.ExpireAt.After(s.Now) {
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
