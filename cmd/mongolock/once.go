package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/once"
)

// A onceCmd is `mongolock once`.
type onceCmd struct {
	Name     string        `arg:"" help:"The name under which it is recorded."`
	Content  []string      `help:"File whose content is what is run; repeatable (default: the command and its arguments are)." placeholder:"FILE" sep:"none"`
	Checksum string        `help:"Text that stands for what is run, in place of --content, such as a version." placeholder:"TEXT"`
	Again    string        `help:"Run it again although it is done, and record why." placeholder:"WHY"`
	MaxHold  time.Duration `help:"End the command when it has run this long." placeholder:"1h"`
	taskFlags
}

// Help says what does not fit into a line.
func (*onceCmd) Help() string {
	return `Example:

   mongolock once add-index -- ./add-index.sh

For migrations and set-up on hosts that start together. One host runs the command. The others wait,
and exit with 0 when it is done, or with 72 if it failed there. From then on nobody runs it: a call
says who did, and exits with 0. A command that failed is run again by the next call. One whose
process died, or was told to end by a signal, is run again by a process that waits. mongolock
once-ls lists all runs.

The command may run twice, if its process dies between the end of the work and its record.
MONGOLOCK_RUN is 1 in the first run; later, an earlier run may have done a part of the work.

The checksum of what is run is recorded. A call with another checksum runs nothing and exits with
73: give changed work a new name. The environment is that of run, and so is the end of the command.`
}

const onceName = 256 // bytes, at most

func (c *onceCmd) check() error {
	if c.Checksum != "" && len(c.Content) > 0 {
		return exitf(exitUsage, "--content and --checksum: only one of them can be given")
	}
	return errors.Join(checkName("NAME", c.Name, onceName), c.terms().err)
}

func (c *onceCmd) terms() terms {
	t := c.taskFlags.terms()
	t.add(c.MaxHold != 0, "--max-hold", mongolock.MaxHold(c.MaxHold))
	return t
}

// content returns the content whose checksum is in the record.
func (c *onceCmd) content() ([][]byte, error) {
	var parts [][]byte
	switch {
	case c.Checksum != "":
		return [][]byte{[]byte(c.Checksum)}, nil
	case len(c.Content) == 0:
		for _, arg := range c.Command {
			parts = append(parts, []byte(arg))
		}
		return parts, nil
	}
	for _, name := range c.Content {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, exitf(exitUsage, "--content: %s", sentence(err))
		}
		parts = append(parts, text)
	}
	return parts, nil
}

// An unfinished says how a command ended without doing its work. It is in the record.
type unfinished struct {
	*exitError
	stopped bool // the command was told to end
}

func (u *unfinished) Error() string {
	if u.text != "" {
		return u.text
	}
	return fmt.Sprintf("the command ended with %d", u.code)
}

func (u *unfinished) Unwrap() error { return u.exitError }

// Is makes a command that was told to end count as stopped, not as failed.
func (u *unfinished) Is(target error) bool { return u.stopped && target == context.Canceled }

// Run runs the command, unless its work is done.
func (c *onceCmd) Run(a *app) error {
	content, err := c.content()
	if err != nil {
		return err
	}
	task, err := a.newTask(c.Name, &c.taskFlags)
	if err != nil {
		return err
	}
	coll, err := a.collection("once")
	if err != nil {
		return err
	}
	opts := []once.Option{once.WithLogger(a.logger()), once.WithMargin(c.margin()), once.With(c.terms().all...)}
	if a.Owner != "" {
		opts = append(opts, once.WithOwner(a.Owner))
	}
	if c.Again != "" {
		if err := once.Reset(a.ctx, coll, c.Name, c.Again, opts...); err != nil {
			return err
		}
	}
	t := a.teller(c.Name)
	ran, done := false, true
	work := func(_ context.Context, run once.Run) error {
		ran = true
		t.tell("granted", "", map[string]any{"token": decimal(run.Token()), "run": run.Number()})
		task.tells(run.Lease().Remaining(), c.MaxHold, "MONGOLOCK_TOKEN="+decimal(run.Token()), "MONGOLOCK_RUN="+strconv.Itoa(run.Number()))
		err := hold(task, run.Lease(), t)
		var exit *exitError
		if errors.As(err, &exit) {
			return &unfinished{exit, exit.told || exit.unbegun}
		}
		return err
	}
	opts = append(opts, once.Content(content...))
	if c.Wait != nil && *c.Wait == 0 {
		done, err = once.TryDo(a.ctx, coll, c.Name, work, opts...)
	} else {
		err = once.Do(a.ctx, coll, c.Name, work, opts...)
	}
	var held *mongolock.HeldError
	switch {
	case ran:
		return err
	case err == nil && !done:
		return exitf(exitTimeout, "%s still runs after %v", c.Name, *c.Wait)
	case err == nil:
		t.tell("done", c.Name+" is done already (mongolock once-ls tells by whom)", nil)
		return nil
	case errors.As(err, &held) && c.Wait != nil:
		return exitf(exitTimeout, "%s still runs after %v%s", c.Name, *c.Wait, by(held))
	}
	return err
}

// A onceLsCmd is `mongolock once-ls`.
type onceLsCmd struct {
	Name *string `arg:"" optional:"" help:"Only this name, with all its runs."`
}

func (c *onceLsCmd) check() error {
	if c.Name == nil {
		return nil
	}
	return checkName("NAME", *c.Name, onceName)
}

// Run shows the records.
func (c *onceLsCmd) Run(a *app) error {
	coll, err := a.collection("once")
	if err != nil {
		return err
	}
	p := a.table(coll, "name", "run", "outcome", "began", "took", "owner", "error", "note")
	if c.Name != nil {
		r, err := once.Look(a.ctx, coll, *c.Name)
		switch {
		case err != nil:
			return err
		case len(r.Past) == 0:
			return exitf(exitNothing, "nobody has run %s", *c.Name)
		}
		return errors.Join(show(p, r, r.Past), p.flush())
	}
	return each(p, once.List(a.ctx, coll), func(r once.Record) error { return show(p, r, r.Past[max(0, len(r.Past)-1):]) })
}

// show prints a record: some of its runs, or all as JSON.
func show(p *printer, r once.Record, runs []once.Entry) error {
	if p.asJSON {
		return p.row(r)
	}
	for _, e := range runs {
		took := ""
		if e.Outcome != once.Undone && !e.Ended.IsZero() {
			took = span(e.Took())
		}
		if err := p.row(nil, r.Name, strconv.Itoa(e.Number), string(e.Outcome), moment(e.Began), took, e.Owner, strings.TrimSpace(e.Error), e.Note); err != nil {
			return err
		}
	}
	return nil
}
