package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// A runCmd is `mongolock run`.
type runCmd struct {
	Key     string        `arg:"" help:"The key to hold."`
	Wait    time.Duration `help:"Give up when the key is still held after so long. Without --wait and --try: never." xor:"wait" placeholder:"30s"`
	Try     bool          `help:"Do not wait for the key." xor:"wait"`
	Shared  bool          `help:"Hold the key together with others that ask so." xor:"mode"`
	Permits *int          `help:"Take one of N permits of the key." xor:"mode" placeholder:"N"`
	MinHold time.Duration `help:"Keep the key for so long after it was granted, though the command ends sooner: for one short job on hosts whose clocks differ." placeholder:"30s"`
	At      string        `help:"Run for the due time that has come last by a cron expression, in this host's time zone, unless another host has claimed it. For a crontab that is on many hosts." placeholder:"'0 3 * * *'"`
	Held    *int          `name:"held-exit-code" help:"End with N, and in silence, if the key is held (--try, --wait) or the due time was claimed (--at). By default 75, 76 and 0." placeholder:"N"`
	TTL     time.Duration `name:"ttl" help:"How long the key stays taken after this process died." default:"30s" placeholder:"30s"`
	Margin  time.Duration `help:"How long before others can be granted the key a lost lease ends; half of it is the time between SIGTERM and SIGKILL. By default a tenth of the TTL, at most 1s." placeholder:"1s"`
	MaxHold time.Duration `help:"End the command when it has held the key for so long." placeholder:"1h"`
	Note    string        `help:"A text that others see beside the key; by default the command." placeholder:"TEXT"`
	argv
}

// Help says what does not fit into a line.
func (*runCmd) Help() string {
	return `The command runs in a process group of its own, with this environment:

   MONGOLOCK_KEY       the key
   MONGOLOCK_TOKEN     the fencing token: greater than that of every earlier holder
   MONGOLOCK_DEADLINE  seconds since 1970 by this host's clock: with --max-hold, when the
                       command will be ended; without, until when the lease is good unless
                       it is renewed (it is renewed for as long as the command runs)

With --at a crontab line stands on many hosts and runs on one of them, for each due time, however
their clocks differ by less than the time between two:

   0 3 * * *  mongolock run --at '0 3 * * *' nightly -- ./report.sh

The host that claims the due time first runs the command; the others end in silence, with 0. A
command that fails or is killed is not run again for that due time. If the key is held (--try,
--wait) the due time is given back, and a later call can run it. Claims are kept in the
collection locks.due, one document for each key. Without --at, --min-hold serves: the key stays
taken for longer than the clocks differ.

The lease is renewed until the command ends. When the lease is lost, the whole process
group gets SIGTERM, and SIGKILL half a margin later: before another process can be granted
the key. When the command ends, what it left in its process group is ended in the same
way, and then the key is given back. Signals are passed on to the group. On a terminal the
command is in the foreground, as without mongolock; Ctrl-Z stops it and mongolock.

A second process, the guard, has the same deadline and ends the group if mongolock is
killed or stopped (SIGSTOP, Ctrl-Z for longer than the lease lasts). Not covered: a
process that leaves the group (setsid), one that becomes another user (use sudo mongolock
run, not mongolock run … sudo), one in an uninterruptible system call, both processes
killed at once (on Linux the command itself ends then, what it started does not), and a
whole machine that is paused. Only the token, checked where the command
writes, stops those. In a pipeline whose other part reads the terminal (| less) give the
command another standard input.

With --output json what happens to the lease is told on standard error.`
}

func (c *runCmd) margin() time.Duration { return marginOf(c.Margin, c.TTL) }

// check refuses bad arguments by their names.
func (c *runCmd) check() error {
	return errors.Join(checkTimes(c.Margin, c.TTL, c.Wait), c.checkAt(), checkOptions(c.Key, []flagged{
		{"--ttl", true, mongolock.TTL(c.TTL)},
		{"--max-hold", c.MaxHold != 0, mongolock.MaxHold(c.MaxHold)},
		{"--min-hold", c.MinHold != 0, mongolock.MinHold(c.MinHold)},
		{"--permits", c.Permits != nil, mongolock.OneOf(c.permits())},
		{"--note", c.Note != "", mongolock.Note(c.Note)},
		{"KEY", true, mongolock.TTL(time.Minute)},
	}))
}

// checkAt tries --at and --held-exit-code.
func (c *runCmd) checkAt() error {
	switch {
	case c.Held != nil && (*c.Held < 0 || *c.Held > 255):
		return exitf(exitUsage, "--held-exit-code=%d: must be from 0 to 255", *c.Held)
	case c.At == "":
		return nil
	case c.Shared || c.Permits != nil:
		return exitf(exitUsage, "--at: a due time is claimed by one, not with --shared or --permits")
	case !strings.Contains(c.At, "TZ=") && hasNamelessZone():
		return exitf(exitUsage, "--at: the name of this host's time zone is not known: write it in front, as in 'CRON_TZ=Europe/Berlin 0 3 * * *'")
	case lastDue(c.At, time.Now()).IsZero():
		return exitf(exitUsage, "--at=%q: not a cron expression (minute, hour, day, month, day of week), or never due", c.At)
	}
	return nil
}

func (c *runCmd) permits() int {
	if c.Permits == nil {
		return 0
	}
	return *c.Permits
}

// checkOwner tries --owner.
func (a *app) checkOwner() error {
	if a.Owner == "" {
		return nil
	}
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.WithOwner(a.Owner))
	if err != nil {
		return exitf(exitUsage, "--owner: %s", reason(err))
	}
	return client.Close()
}

func (c *runCmd) options() []mongolock.AcquireOption {
	opts := []mongolock.AcquireOption{mongolock.TTL(c.TTL)}
	note := c.Note
	if note == "" {
		note = noteOf(c.Command)
	}
	opts = append(opts, mongolock.Note(note))
	if c.Shared {
		opts = append(opts, mongolock.Shared())
	}
	if c.Permits != nil {
		opts = append(opts, mongolock.OneOf(*c.Permits))
	}
	if c.MinHold > 0 {
		opts = append(opts, mongolock.MinHold(c.MinHold))
	}
	if c.MaxHold > 0 {
		opts = append(opts, mongolock.MaxHold(c.MaxHold))
	}
	if c.Wait > 0 {
		opts = append(opts, mongolock.MaxWait(c.Wait))
	}
	return opts
}

// Run takes the key, runs the command and gives the key back.
func (c *runCmd) Run(a *app) error {
	if err := errors.Join(c.check(), a.checkOwner()); err != nil {
		return err
	}
	task, err := newTask(c.Key, c.Command, c.TTL, c.margin())
	if err != nil {
		return err
	}
	t := teller{a.stderr, a.Output == "json", c.Key}

	ctx, caught := untilSignal()
	defer caught()
	d, err := a.reach(ctx)
	if err != nil {
		return c.refused(ctx, err)
	}
	client, err := a.locks(d, mongolock.WithMargin(c.margin()), mongolock.TTL(c.TTL))
	if err != nil {
		return err
	}
	var mine *due
	if c.At != "" {
		if mine, err = c.claim(ctx, a, d, t); err != nil || mine == nil {
			_ = client.Close() // it has claimed nothing
			return err
		}
	}
	acquire := client.Acquire
	if c.Try {
		acquire = client.TryAcquire
	}
	lease, err := acquire(ctx, c.Key, c.options()...)
	if err != nil {
		_ = client.Close() // a claim whose outcome is unknown is undone
		c.giveBack(a, d, t, mine)
		return c.refused(ctx, err)
	}
	t.tell("granted", "", map[string]any{"token": decimal(lease.Token())})
	caught() // from here on signals go to the command

	task.env = environment(c.Key, lease.Token(), lease.Remaining(), c.MaxHold)
	err = hold(task, lease, t)
	if ended := lease.Err(); errors.Is(ended, mongolock.ErrLost) && !errors.Is(ended, mongolock.ErrMaxHold) && !errors.Is(ended, mongolock.ErrBroken) {
		return err // the lease has run out: the key is free soon, and the server may be out of reach
	}
	if released := lease.Release(); released != nil && !errors.Is(released, mongolock.ErrLost) {
		t.tell("unreleased", fmt.Sprintf("the key %s is not given back and stays taken for %v at most: %s", shown(c.Key), c.TTL, sentence(released)), nil)
		return err
	}
	_ = client.Close() // it holds nothing any more
	d.close()
	return err
}

// refused returns the error of a command that was not run.
func (c *runCmd) refused(ctx context.Context, err error) error {
	var s *signalError
	if errors.As(context.Cause(ctx), &s) {
		return exitf(exitSignal+int(s.signal), "")
	}
	var held *mongolock.HeldError
	ok := errors.As(err, &held)
	switch {
	case !ok:
		return err
	case c.Held != nil:
		return exitf(*c.Held, "")
	case c.Try:
		return exitf(exitHeld, "%s is held%s", shown(c.Key), by(held.Status))
	}
	return exitf(exitTimeout, "%s is still held after %v%s", shown(c.Key), c.Wait, by(held.Status))
}

// by describes the holder of a key.
func by(s mongolock.Status) string {
	for _, h := range s.Holders {
		if s.Live(h) {
			return fmt.Sprintf(" by %s for %s", shown(h.Owner), span(s.Now.Sub(h.Since)))
		}
	}
	return ""
}
