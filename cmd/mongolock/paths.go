package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/pathlock"
)

// A pathsCmd is `mongolock paths`.
type pathsCmd struct {
	Lock  pathLockCmd  `cmd:"" help:"Run a command while holding a path, and all that is below it."`
	Ls    pathLsCmd    `cmd:"" help:"List the locks of a tree of paths."`
	Break pathBreakCmd `cmd:"" help:"Take a path away from its holders."`
}

// A place is the part of the command line that says where a tree is.
type place struct {
	Tree string `help:"Name of the tree (default: files)." default:"files" env:"MONGOLOCK_TREE" placeholder:"NAME"`
	Dir  string `help:"Keep the tree in this directory, for the processes of one host, and not on MongoDB." env:"MONGOLOCK_DIR" placeholder:"DIR"`

	coll *mongo.Collection // of a tree on MongoDB, once it is open
}

// open opens the tree. The function that it returns closes it.
func (p *place) open(ctx context.Context, a *app, opts ...pathlock.Option) (*pathlock.Tree, func(), error) {
	if err := p.check(); err != nil {
		return nil, nil, err
	}
	var storage pathlock.Storage
	var shut func()
	if p.Dir != "" {
		dir, err := pathlock.InDir(p.Dir)
		if err != nil {
			return nil, nil, exitf(exitUsage, "--dir: %s", reason(err))
		}
		storage, shut = dir, func() { _ = dir.Close() }
	} else {
		d, err := a.reach(ctx)
		if err != nil {
			return nil, nil, err
		}
		shut, p.coll = d.close, d.collection(&a.connection, "locks")
		if storage, err = pathlock.OnMongo(p.coll); err != nil {
			shut()
			return nil, nil, err
		}
	}
	tree, err := pathlock.New(storage, p.Tree, append(opts, pathlock.WithLogger(a.logger()))...)
	if err != nil {
		shut()
		return nil, nil, exitf(exitUsage, "--tree: %s", reason(err))
	}
	return tree, func() { _ = tree.Close(); shut() }, nil
}

// nothing says on standard error that a list found no lock.
func (p *place) nothing(ctx context.Context, a *app) {
	if p.coll == nil || !a.missing(ctx, p.coll) {
		fmt.Fprintf(a.stderr, "mongolock: nothing is locked in the tree %s\n", shown(p.Tree))
	}
}

// check tries the tree's name on a storage in memory.
func (p *place) check() error {
	tree, err := pathlock.New(pathlock.InMemory(), p.Tree)
	if err != nil {
		return exitf(exitUsage, "--tree: %s", reason(err))
	}
	return tree.Close()
}

func checkPath(path string) error {
	if _, err := pathlock.Clean(path); err != nil {
		return exitf(exitUsage, "PATH: %s", reason(err))
	}
	return nil
}

// owner returns what others see beside a path: the process, and what it does.
func (a *app) owner(note string) []byte {
	who := a.Owner
	if who == "" {
		host, err := os.Hostname()
		who = fmt.Sprintf("%s/%d", cmp.Or(host, "unknown"), os.Getpid())
		if err != nil {
			who = fmt.Sprintf("unknown/%d", os.Getpid())
		}
	}
	if note != "" {
		who += ": " + note
	}
	return []byte(who)
}

// A pathLockCmd is `mongolock paths lock`.
type pathLockCmd struct {
	place
	Path   string         `arg:"" help:"The path, such as src/api."`
	Try    bool           `help:"Do not wait: exit with 75 if the path is held." xor:"wait"`
	Wait   *time.Duration `help:"Give up after waiting this long, with 76 (default: wait for ever)." xor:"wait" placeholder:"30s"`
	Shared bool           `help:"Share the path with others that ask for it with --shared."`
	Only   bool           `help:"Lock the path itself, without what is below it."`
	TTL    time.Duration  `name:"ttl" help:"How long the path stays taken if this process dies (default: 30s)." default:"30s" placeholder:"30s"`
	Margin time.Duration  `help:"As that of run." placeholder:"1s"`
	Note   string         `help:"Text that others see beside the path (default: the command's words before its first option)." placeholder:"TEXT"`
	argv
}

// Help says what does not fit into a line.
func (*pathLockCmd) Help() string {
	return `Example:

   mongolock paths lock src/api -- make generate

The path and everything below it is locked until the command ends: meanwhile no overlapping path is
granted to others. If the lock is lost, the command's process group is ended before others can have
the path, as under run.

The command's environment has MONGOLOCK_KEY (the path), MONGOLOCK_DEADLINE (as under run), and
MONGOLOCK_PATH_TOKEN, which is as secret as the lock. That is not a fencing token: to fence a
resource, lock a key with run.

src/api, /src/api and /src//api/ are one path; the segments . and .. are refused. A path need not
be a file.`
}

func (c *pathLockCmd) check() error {
	if len(c.Note) > 1024 {
		return exitf(exitUsage, "--note: has %d bytes: at most 1024", len(c.Note))
	}
	return errors.Join(checkPath(c.Path), checkTimes(c.Margin, c.TTL, c.Wait), checkOptions("", []flagged{{"--ttl", true, mongolock.TTL(c.TTL)}}))
}

// Run takes the path, runs the command and gives the path back.
func (c *pathLockCmd) Run(a *app) error {
	if err := errors.Join(c.check(), c.place.check(), a.checkOwner()); err != nil {
		return err
	}
	note := c.Note
	if note == "" {
		note = noteOf(c.Command)
	}
	clean, _ := pathlock.Clean(c.Path)
	task, err := newTask(clean, c.Command, c.TTL, marginOf(c.Margin, c.TTL))
	if err != nil {
		return err
	}
	t := teller{a.stderr, a.Output == "json", clean}
	ctx, caught := untilSignal()
	defer caught()
	tree, shut, err := c.open(ctx, a, pathlock.WithMargin(task.margin))
	if err != nil {
		return refusedBy(ctx, err)
	}
	patience := time.Duration(-1)
	if c.Try {
		patience = 0
	} else if c.Wait != nil {
		patience = *c.Wait
	}
	h, err := takePath(ctx, tree, request(c.Path, c.Shared, c.Only, c.TTL, a.owner(note)), patience)
	if err != nil {
		shut()
		return c.refused(ctx, err)
	}
	t.tell("granted", "", map[string]any{"path": clean})
	task.begin = func() error { return begun(ctx, caught) }
	task.env = []string{
		"MONGOLOCK_KEY=" + clean,
		"MONGOLOCK_PATH_TOKEN=" + h.Lock.Token,
		fmt.Sprintf("MONGOLOCK_DEADLINE=%d", time.Now().Add(h.Remaining()).Unix()),
	}
	err = hold(task, h, t)
	if errors.Is(h.Err(), mongolock.ErrLost) {
		return err // the server may be out of reach, and the path is free soon
	}
	if released := h.Release(); released != nil {
		t.tell("unreleased", fmt.Sprintf("the path %s is not given back and stays taken for %v at most: %s", shown(clean), c.TTL, sentence(released)), nil)
		return err
	}
	shut()
	return err
}

// request returns the request to make of a tree.
func request(path string, shared, only bool, ttl time.Duration, owner []byte) pathlock.Request {
	r := pathlock.Request{Path: path, Mode: pathlock.Exclusive, Depth: pathlock.Infinity, Timeouts: []time.Duration{ttl}, Owner: owner}
	if shared {
		r.Mode = pathlock.Shared
	}
	if only {
		r.Depth = pathlock.Zero
	}
	return r
}

// refused returns the error of a command that was not run.
func (c *pathLockCmd) refused(ctx context.Context, err error) error {
	var conflict *pathlock.ConflictError
	switch {
	case ctx.Err() != nil, !errors.As(err, &conflict):
		return refusedBy(ctx, err)
	case c.Try:
		return exitf(exitHeld, "%s is held%s", shown(c.Path), inTheWay(conflict))
	}
	return exitf(exitTimeout, "%s is still held after %v%s", shown(c.Path), *c.Wait, inTheWay(conflict))
}

// inTheWay describes the first of the locks that are in the way.
func inTheWay(e *pathlock.ConflictError) string {
	all := slices.Concat(e.Parents, e.Same, e.Children)
	if len(all) == 0 && len(e.Waiting) > 0 {
		return ": an exclusive lock of " + shown(e.Waiting[0].Path) + " is waited for"
	}
	if len(all) == 0 {
		return ""
	}
	l := all[0]
	text := fmt.Sprintf(": %s, %s, depth %s", shown(l.Path), l.Mode, l.Depth)
	if len(l.Owner) > 0 {
		text += ", by " + shown(string(l.Owner))
	}
	if more := e.Len() + e.More - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}
