package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mongolock/mongolock"
)

// A runCmd is `mongolock run`.
type runCmd struct {
	Key     string        `arg:"" help:"The key to hold."`
	Try     bool          `help:"Do not wait: exit with 75 if the key is held." xor:"wait"`
	Held    *int          `name:"held-exit-code" short:"E" help:"Exit with N instead, and print nothing, if the key is held (--try, --wait) or the due time is claimed (--at)." placeholder:"N"`
	At      string        `help:"Run for the latest due time of this cron expression, unless another host has claimed it." placeholder:"'0 3 * * *'"`
	Shared  bool          `help:"Share the key with others that ask for it with --shared." xor:"mode"`
	Permits *int          `help:"Take one of N permits: at most N commands run at a time." xor:"mode" placeholder:"N"`
	Weight  *int          `help:"Take W of the N permits (default: one)." placeholder:"W"`
	MinHold time.Duration `help:"Keep the key for at least this long, even if the command ends sooner." placeholder:"30s"`
	MaxHold time.Duration `help:"End the command when it has held the key this long." placeholder:"1h"`
	taskFlags
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

   MONGOLOCK_URI_FILE=/etc/mongolock.uri
   0 3 * * *  /usr/local/bin/mongolock run --at '0 3 * * *' nightly -- /srv/report.sh

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

The lease is renewed until the command ends. If it is lost, what the command has started gets SIGTERM
and then SIGKILL, before another process can have the key. What the command leaves behind is ended in
the same way, and then the key is given back. Signals are passed on to the command, but in the
foreground of a terminal not SIGINT and SIGQUIT: typed ones reach it anyway. A second process, the
guard, ends the command in time if mongolock is killed or stopped. After kill -9 of mongolock the key
stays taken for the rest of its TTL.

The command has a process group of its own, but on a terminal it shares that of mongolock. On Linux
what the command has started is its own group, every process with its MONGOLOCK_MARK in the
environment, and all that these start: also a step under timeout, set -m or setsid. Start a daemon
that is to live on with env -u MONGOLOCK_MARK. Not found are processes that have cleared or
overwritten their environment and whose parent has ended, as the command has after kill -9 of
mongolock, and what other services start (docker, systemd, at). On other systems only the command's
own group is ended, and on a terminal the command alone: use timeout --foreground there.

Nothing ends for certain a process that becomes another user (so use sudo mongolock run, not mongolock
run … sudo), one in an uninterruptible system call or on a paused machine, or a chain that ignores SIGTERM
and forks within milliseconds. If mongolock and the guard are killed at once, only the command itself ends,
on Linux; if both are stopped, nothing does. Only the token, checked where the command writes, stops those.

With --output json, what happens to the lease is printed on standard error.`
}

func (c *runCmd) check() error {
	return errors.Join(checkKey(c.Key), c.checkAt(), c.terms().err)
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

// terms returns the options that the flags set.
func (c *runCmd) terms() terms {
	t := c.taskFlags.terms()
	t.add(c.Shared, "--shared", mongolock.Shared())
	t.add(c.MinHold != 0, "--min-hold", mongolock.MinHold(c.MinHold))
	t.add(c.MaxHold != 0, "--max-hold", mongolock.MaxHold(c.MaxHold))
	if c.Permits != nil {
		t.add(true, "--permits", mongolock.OneOf(*c.Permits))
	}
	switch {
	case c.Weight == nil:
	case c.Permits == nil:
		t.err = errors.Join(t.err, exitf(exitUsage, "--weight: only with --permits"))
	default:
		t.all = append(t.all, mongolock.Weight(*c.Weight))
		if err := tryOptions("k", mongolock.OneOf(*c.Permits), mongolock.Weight(*c.Weight)); err != nil {
			t.err = errors.Join(t.err, exitf(exitUsage, "--weight: %s", reason(err)))
		}
	}
	return t
}

// Run takes the key, runs the command and gives the key back.
func (c *runCmd) Run(a *app) error {
	task, err := a.newTask(c.Key, &c.taskFlags)
	if err != nil {
		return err
	}
	coll, err := a.collection("locks")
	if err != nil {
		return err
	}
	client, err := a.client(coll, mongolock.WithMargin(c.margin()), mongolock.TTL(c.TTL))
	if err != nil {
		return err
	}
	var mine *due
	if c.At != "" {
		if mine, err = c.claim(a, coll); err != nil || mine == nil {
			return err
		}
	}
	acquire := client.Acquire
	if c.Try || c.Wait != nil && *c.Wait == 0 {
		acquire = client.TryAcquire
	}
	lease, err := acquire(a.ctx, c.Key, c.terms().all...)
	if err != nil {
		if c.Wait != nil && a.ctx.Err() == nil && ping(a.ctx, coll.Database().Client(), time.Second) != nil {
			a.ends = nil // its place in line gets stale by itself
			c.giveBack(a, coll, mine)
			return c.unknown(err)
		}
		_ = client.Close() // a claim whose outcome is unknown is undone
		c.giveBack(a, coll, mine)
		return c.refused(err)
	}
	a.teller(c.Key).tell("granted", "", map[string]any{"token": decimal(lease.Token())})
	task.tells(lease.Remaining(), c.MaxHold, "MONGOLOCK_TOKEN="+decimal(lease.Token()))
	err = a.under(task, lease)
	var e *exitError
	if errors.As(err, &e) && e.unbegun {
		c.giveBack(a, coll, mine)
	}
	return err
}

// unknown is refused if the server no longer answers, so that nobody takes what it said last for what is.
func (c *runCmd) unknown(err error) error {
	var held *mongolock.HeldError
	if errors.As(err, &held) {
		return exitf(exitUnreachable, "%s was held%s, and the server no longer answers", c.Key, by(held))
	}
	return exitf(exitUnreachable, "the server no longer answers: whether %s is held is not known", c.Key)
}

// refused returns the error of a command that was not run.
func (c *runCmd) refused(err error) error {
	var held *mongolock.HeldError
	switch {
	case c.Wait != nil && !errors.As(err, &held) && strings.Contains(err.Error(), "MaxWait exceeded"): // a claim was under way
		return exitf(exitTimeout, "%s was not granted within %v: %s", c.Key, *c.Wait, reason(err))
	case !errors.As(err, &held), !c.Try && c.Wait == nil: // a signal has ended the wait
		return err
	case c.Held != nil:
		return exitf(*c.Held, "")
	}
	return c.taskFlags.refused(err, c.Try, c.Key, by(held))
}

// by describes the holder of a key, and the line before a claim.
func by(e *mongolock.HeldError) (text string) {
	for _, h := range e.Holders {
		if !e.Live(h) || h.Released && text != "" {
			continue
		}
		if !h.Released {
			text = fmt.Sprintf(" by %s for %s", h.Owner, span(e.Now.Sub(h.Since)))
			break
		}
		text = fmt.Sprintf(" by %s, which released it, for another %s", h.Owner, span(e.LeftOf(h)))
	}
	if n := e.Ahead(); n > 0 {
		text += fmt.Sprintf(" (%d ahead in line)", n)
	}
	return text
}
