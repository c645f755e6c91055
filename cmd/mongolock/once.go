package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/once"
)

// A onceCmd is `mongolock once`.
type onceCmd struct {
	Name     string         `arg:"" help:"The name under which it is recorded."`
	Wait     *time.Duration `help:"Give up, with 76, if another process still runs it after this long (default: wait for ever)." placeholder:"10m"`
	Content  []string       `help:"File whose content is what is run; repeatable (default: the command and its arguments are)." placeholder:"FILE" sep:"none"`
	Checksum string         `help:"Text that stands for what is run, in place of --content, such as a version." placeholder:"TEXT"`
	Again    string         `help:"Run it again although it is done, and record why." placeholder:"WHY"`
	MaxHold  time.Duration  `help:"End the command when it has run this long." placeholder:"1h"`
	TTL      time.Duration  `name:"ttl" help:"How soon another process takes over if this one dies (default: 30s)." default:"30s" placeholder:"30s"`
	Margin   time.Duration  `help:"As that of run." placeholder:"1s"`
	Note     string         `help:"Text that is recorded with the run (default: the command's words before its first option)." placeholder:"TEXT"`
	argv
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

func (c *onceCmd) check() error {
	if c.Checksum != "" && len(c.Content) > 0 {
		return exitf(exitUsage, "--content and --checksum: only one of them can be given")
	}
	if err := once.CheckName(c.Name); err != nil {
		return exitf(exitUsage, "NAME: %s", reason(err))
	}
	return errors.Join(checkTimes(c.Margin, c.TTL, c.Wait), checkOptions("", []flagged{
		{"--ttl", true, mongolock.TTL(c.TTL)},
		{"--max-hold", c.MaxHold != 0, mongolock.MaxHold(c.MaxHold)},
		{"--note", c.Note != "", mongolock.Note(c.Note)},
	}))
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

func (c *onceCmd) lease() []mongolock.AcquireOption {
	note := c.Note
	if note == "" {
		note = noteOf(c.Command)
	}
	opts := []mongolock.AcquireOption{mongolock.TTL(c.TTL), mongolock.Note(note)}
	if c.MaxHold > 0 {
		opts = append(opts, mongolock.MaxHold(c.MaxHold))
	}
	if c.Wait != nil && *c.Wait > 0 {
		opts = append(opts, mongolock.MaxWait(*c.Wait))
	}
	return opts
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
	if err := errors.Join(c.check(), a.checkOwner()); err != nil {
		return err
	}
	content, err := c.content()
	if err != nil {
		return err
	}
	task, err := newTask(c.Name, c.Command, c.TTL, marginOf(c.Margin, c.TTL))
	if err != nil {
		return err
	}
	t := teller{a.stderr, a.Output == "json", c.Name}
	ctx, caught := untilSignal()
	defer caught()
	d, err := a.reach(ctx)
	if err != nil {
		return refusedBy(ctx, err)
	}
	defer d.close()
	coll := d.collection(&a.connection, "once")
	opts := []once.Option{once.WithLogger(a.logger()), once.WithMargin(task.margin), once.With(c.lease()...)}
	if a.Owner != "" {
		opts = append(opts, once.WithOwner(a.Owner))
	}
	if c.Again != "" {
		if err := once.Reset(ctx, coll, c.Name, c.Again, opts...); err != nil {
			return refusedBy(ctx, err)
		}
	}
	ran, done := false, true
	work := func(_ context.Context, run once.Run) error {
		ran = true
		t.tell("granted", "", map[string]any{"token": decimal(run.Token()), "run": run.Number()})
		task.begin = func() error { return begun(ctx, caught) }
		task.env = append(environment(c.Name, run.Token(), run.Lease().Remaining(), c.MaxHold), "MONGOLOCK_RUN="+strconv.Itoa(run.Number()))
		err := hold(task, run.Lease(), t)
		var exit *exitError
		if errors.As(err, &exit) {
			return &unfinished{exit, exit.told}
		}
		return err
	}
	opts = append(opts, once.Content(content...))
	if c.Wait != nil && *c.Wait == 0 {
		done, err = once.TryDo(ctx, coll, c.Name, work, opts...)
	} else {
		err = once.Do(ctx, coll, c.Name, work, opts...)
	}
	var held *mongolock.HeldError
	switch {
	case ran:
		return err
	case err == nil && !done:
		return exitf(exitTimeout, "%s still runs after %v", shown(c.Name), *c.Wait)
	case err == nil:
		t.tell("done", c.was(ctx, coll), nil)
		return nil
	case errors.As(err, &held) && c.Wait != nil:
		return exitf(exitTimeout, "%s still runs after %v%s", shown(c.Name), *c.Wait, by(held))
	}
	return refusedBy(ctx, err)
}

// was says who has done the work.
func (c *onceCmd) was(ctx context.Context, coll *mongo.Collection) string {
	text := fmt.Sprintf("%s is done already", shown(c.Name))
	r, err := once.Look(ctx, coll, c.Name)
	if err != nil || len(r.Past) == 0 {
		return text
	}
	last := r.Past[len(r.Past)-1]
	return fmt.Sprintf("%s: by run %d, of %s, at %s", text, last.Number, shown(last.Owner), last.Ended.UTC().Format(time.RFC3339))
}

// refusedBy returns the error of a command that did not begin, or only looks: the signal's, if one came.
func refusedBy(ctx context.Context, err error) error {
	var s *signalError
	if errors.As(context.Cause(ctx), &s) {
		return exitf(exitSignal+int(s.signal), "")
	}
	return err
}

// A onceLsCmd is `mongolock once-ls`.
type onceLsCmd struct {
	Name string `arg:"" optional:"" help:"Only this name, with all its runs."`
}

// Run shows the records.
func (c *onceLsCmd) Run(a *app) error {
	ctx := context.Background()
	if c.Name != "" {
		if err := once.CheckName(c.Name); err != nil {
			return exitf(exitUsage, "NAME: %s", reason(err))
		}
	}
	d, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	coll := d.collection(&a.connection, "once")
	p := a.printer("name", "run", "outcome", "began", "took", "owner", "error", "note")
	if c.Name != "" {
		r, err := once.Look(ctx, coll, c.Name)
		switch {
		case err != nil:
			return err
		case len(r.Past) == 0:
			return exitf(exitNothing, "nobody has run %s", shown(c.Name))
		}
		if err := show(p, r, r.Past); err != nil {
			return err
		}
		return p.flush()
	}
	p.none = func() { a.nothing(ctx, coll) }
	for r, err := range once.List(ctx, coll) {
		if err == nil {
			err = show(p, r, r.Past[max(0, len(r.Past)-1):])
		}
		if err != nil {
			return err
		}
	}
	return p.flush()
}

// show prints a record: some of its runs, or all as JSON.
func show(p *printer, r once.Record, runs []once.Entry) error {
	if p.asJSON {
		return p.row(r)
	}
	for _, e := range runs {
		state := cell{string(e.Outcome), yellow}
		switch e.Outcome {
		case once.Succeeded:
			state.tone = green
		case once.Failed, once.Panicked, once.Died:
			state.tone = red
		}
		took := ""
		if e.Outcome != once.Undone && !e.Ended.IsZero() {
			took = span(e.Took())
		}
		if err := p.row(nil, cell{shown(r.Name), bold}, cell{text: strconv.Itoa(e.Number)}, state, cell{text: e.Began.UTC().Format("2006-01-02 15:04:05")},
			cell{text: took}, cell{text: shown(e.Owner)}, cell{shown(strings.TrimSpace(e.Error)), red}, cell{shown(e.Note), dim}); err != nil {
			return err
		}
	}
	return nil
}
