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
	Key     string         `arg:"" help:"The key to hold."`
	Try     bool           `help:"Do not wait: exit with 75 if the key is held." xor:"wait"`
	Wait    *time.Duration `help:"Give up after waiting this long, with 76 (default: wait for ever)." xor:"wait" placeholder:"30s"`
	Held    *int           `name:"held-exit-code" short:"E" help:"Exit with N instead, and print nothing, if the key is held (--try, --wait) or the due time is claimed (--at)." placeholder:"N"`
	At      string         `help:"Run for the latest due time of this cron expression, unless another host has claimed it." placeholder:"'0 3 * * *'"`
	Shared  bool           `help:"Share the key with others that ask for it with --shared." xor:"mode"`
	Permits *int           `help:"Take one of N permits: at most N commands run at a time." xor:"mode" placeholder:"N"`
	Weight  *int           `help:"Take W of the N permits (default: one)." placeholder:"W"`
	MinHold time.Duration  `help:"Keep the key for at least this long, even if the command ends sooner." placeholder:"30s"`
	MaxHold time.Duration  `help:"End the command when it has held the key this long." placeholder:"1h"`
	TTL     time.Duration  `name:"ttl" help:"How long the key stays taken if this process dies (default: 30s)." default:"30s" placeholder:"30s"`
	Margin  time.Duration  `help:"A lost lease ends this long before others can have the key; SIGKILL follows SIGTERM after half of it (default: a tenth of the TTL, at most 1s)." placeholder:"1s"`
	Note    string         `help:"Text that others see beside the key (default: the command's words before its first option)." placeholder:"TEXT"`
	argv
}

// Help says what does not fit into a line.
func (*runCmd) Help() string {
	return `Examples:

   mongolock run nightly -- ./report.sh           wait for the key, then run
   mongolock run --try nightly -- ./report.sh     skip it if the key is held
   mongolock run --wait 1m deploy -- make deploy  wait for a minute at most
   mongolock run --permits 3 render -- ./render   at most three at a time
   mongolock run --permits 20 --weight 5 smtp -- ./newsletter
                                                  takes five of twenty

On many hosts the same crontab line runs once for each due time, on the host that claims it first;
the others exit with 0 and print nothing:

   0 3 * * *  mongolock run --at '0 3 * * *' nightly -- ./report.sh

The hosts' clocks may differ by less than the time between two due times. The expression is in the
host's time zone. A command that fails or is killed is not run again for that due time. If the key
is held (--try, --wait) the due time is given back, and a later call can run it. Claims are kept in
the collection locks.due. Without --at, --min-hold keeps a short job from running twice: the key
stays taken for longer than the clocks differ.

The command's environment has:

   MONGOLOCK_KEY       the key
   MONGOLOCK_TOKEN     the fencing token, greater than that of every earlier holder
   MONGOLOCK_DEADLINE  seconds since 1970 by this host's clock: with --max-hold, when the
                       command will be ended; else until when the lease is good if it is
                       not renewed

The lease is renewed until the command ends. If it is lost, the command's process group gets
SIGTERM and then SIGKILL, before another process can have the key. What the command leaves behind
in its group is ended in the same way, and then the key is given back. Signals are passed on to the
group. A second process, the guard, ends the group in time if mongolock is killed or stopped.

Nothing ends a process that leaves the group (setsid) or becomes another user (so use sudo mongolock
run, not mongolock run … sudo), one in an uninterruptible system call, or one on a machine that is
paused; and if mongolock and the guard are killed at once, only the command itself ends, on Linux.
Only the token, checked where the command writes, stops those. In a pipeline whose other part reads
the terminal (| less), give the command another standard input.

With --output json, what happens to the lease is printed on standard error.`
}

func (c *runCmd) margin() time.Duration { return marginOf(c.Margin, c.TTL) }

// check refuses bad arguments by their names.
func (c *runCmd) check() error {
	return errors.Join(checkTimes(c.Margin, c.TTL, c.Wait), c.checkAt(), c.checkWeight(), checkOptions(c.Key, []flagged{
		{"--ttl", true, mongolock.TTL(c.TTL)},
		{"--max-hold", c.MaxHold != 0, mongolock.MaxHold(c.MaxHold)},
		{"--min-hold", c.MinHold != 0, mongolock.MinHold(c.MinHold)},
		{"--permits", c.Permits != nil, mongolock.OneOf(c.permits())},
		{"--note", c.Note != "", mongolock.Note(c.Note)},
		{"KEY", true, mongolock.TTL(time.Minute)},
	}))
}

// checkWeight tries --weight. What is wrong with --permits is said of that.
func (c *runCmd) checkWeight() error {
	switch {
	case c.Weight == nil:
		return nil
	case c.Permits == nil:
		return exitf(exitUsage, "--weight: only with --permits")
	}
	permits := mongolock.OneOf(*c.Permits)
	if tryOption("k", permits) == nil {
		if err := tryOption("k", permits, mongolock.Weight(*c.Weight)); err != nil {
			return exitf(exitUsage, "--weight: %s", reason(err))
		}
	}
	return nil
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
	if c.Weight != nil {
		opts = append(opts, mongolock.Weight(*c.Weight))
	}
	if c.MinHold > 0 {
		opts = append(opts, mongolock.MinHold(c.MinHold))
	}
	if c.MaxHold > 0 {
		opts = append(opts, mongolock.MaxHold(c.MaxHold))
	}
	if c.Wait != nil && *c.Wait > 0 {
		opts = append(opts, mongolock.MaxWait(*c.Wait))
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
	if c.Try || c.Wait != nil && *c.Wait == 0 {
		acquire = client.TryAcquire
	}
	lease, err := acquire(ctx, c.Key, c.options()...)
	if err != nil {
		_ = client.Close() // a claim whose outcome is unknown is undone
		c.giveBack(a, d, t, mine)
		return c.refused(ctx, err)
	}
	t.tell("granted", "", map[string]any{"token": decimal(lease.Token())})

	task.begin = func() error { return begun(ctx, caught) }
	task.env = environment(c.Key, lease.Token(), lease.Remaining(), c.MaxHold)
	err = hold(task, lease, t)
	var e *exitError
	if errors.As(err, &e) && e.unbegun {
		c.giveBack(a, d, t, mine)
	}
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
		return exitf(exitHeld, "%s is held%s", shown(c.Key), by(held))
	}
	return exitf(exitTimeout, "%s is still held after %v%s", shown(c.Key), *c.Wait, by(held))
}

// by describes the holder of a key, and the line before a claim.
func by(e *mongolock.HeldError) (text string) {
	for _, h := range e.Holders {
		if !e.Live(h) || h.Released && text != "" {
			continue
		}
		if !h.Released {
			text = fmt.Sprintf(" by %s for %s", shown(h.Owner), span(e.Now.Sub(h.Since)))
			break
		}
		text = fmt.Sprintf(" by %s, which released it, for another %s", shown(h.Owner), span(e.LeftOf(h)))
	}
	if n := e.Ahead(); n > 0 {
		text += fmt.Sprintf(" (%d ahead in line)", n)
	}
	return text
}
