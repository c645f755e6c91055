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
	Dir  string `help:"Keep the tree in this directory, such as ~/.cache/locks, for this user's processes on one host, and not on MongoDB. Nobody else may write to it." env:"MONGOLOCK_DIR" placeholder:"DIR"`

	coll *mongo.Collection // of a tree on MongoDB, once it is open
}

// open opens the tree. One in a directory that does not exist has no locks; it is made only if new is set.
func (p *place) open(a *app, makes bool, opts ...pathlock.Option) (tree *pathlock.Tree, err error) {
	var storage pathlock.Storage
	if p.Dir == "" {
		if p.coll, err = a.collection("locks"); err != nil {
			return nil, err
		}
		storage, err = pathlock.OnMongo(p.coll)
	} else {
		if _, err := os.Stat(p.Dir); err != nil && !makes {
			return nil, exitf(exitUsage, "--dir: %s", reason(err))
		}
		dir, failed := pathlock.InDir(p.Dir)
		if failed != nil {
			return nil, exitf(exitUsage, "--dir: %s", reason(failed))
		}
		a.atEnd(func() { _ = dir.Close() })
		storage = dir
	}
	if err == nil {
		if tree, err = pathlock.New(storage, p.Tree, append(opts, pathlock.WithLogger(a.logger()))...); err != nil {
			err = exitf(exitUsage, "--tree: %s", reason(err))
		}
	}
	if err == nil {
		a.atEnd(func() { _ = tree.Close() })
	}
	return tree, err
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
		host, _ := os.Hostname() // "" if it is not known
		who = fmt.Sprintf("%s/%d", cmp.Or(host, "unknown"), os.Getpid())
	}
	if note != "" {
		who += ": " + note
	}
	return []byte(who)
}

// A pathLockCmd is `mongolock paths lock`.
type pathLockCmd struct {
	place
	Path   string `arg:"" help:"The path, such as src/api."`
	Try    bool   `help:"Do not wait: exit with 75 if the path is held." xor:"wait"`
	Shared bool   `help:"Share the path with others that ask for it with --shared."`
	Only   bool   `help:"Lock the path itself, without what is below it."`
	taskFlags
}

// Help says what does not fit into a line.
func (*pathLockCmd) Help() string {
	return `Example:

   mongolock paths lock src/api -- make generate

The path and everything below it is locked until the command ends: meanwhile no overlapping path is
granted to others. If the lock is lost, what the command has started is ended before others can have
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
	return errors.Join(checkPath(c.Path), c.terms().err)
}

// Run takes the path, runs the command and gives the path back.
func (c *pathLockCmd) Run(a *app) error {
	clean, err := pathlock.Clean(c.Path)
	if err != nil {
		return err
	}
	task, err := a.newTask(clean, &c.taskFlags)
	if err != nil {
		return err
	}
	tree, err := c.open(a, true, pathlock.WithMargin(c.margin()))
	if err != nil {
		return err
	}
	h, err := c.take(a, tree)
	var conflict *pathlock.ConflictError
	if errors.As(err, &conflict) {
		return c.refused(err, c.Try, c.Path, inTheWay(conflict))
	}
	if err != nil {
		return err
	}
	a.teller(clean).tell("granted", "", map[string]any{"path": clean})
	task.tells(h.Remaining(), 0, "MONGOLOCK_PATH_TOKEN="+h.Lock.Token)
	return a.under(task, h)
}

// take takes the path. It waits for as long as the flags say.
func (c *pathLockCmd) take(a *app, tree *pathlock.Tree) (*pathlock.Hold, error) {
	r := pathlock.Request{Path: c.Path, Mode: pathlock.Exclusive, Depth: pathlock.Infinity, Timeouts: []time.Duration{c.TTL}, Owner: a.owner(c.note())}
	if c.Shared {
		r.Mode = pathlock.Shared
	}
	if c.Only {
		r.Depth = pathlock.Zero
	}
	ctx := a.ctx
	switch {
	case c.Try, c.Wait != nil && *c.Wait == 0:
		return tree.TryHold(ctx, r)
	case c.Wait != nil:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *c.Wait)
		defer cancel()
	}
	return tree.Hold(ctx, r)
}

// inTheWay describes the first of the locks that are in the way.
func inTheWay(e *pathlock.ConflictError) string {
	all := slices.Concat(e.Parents, e.Same, e.Children)
	if len(all) == 0 && len(e.Waiting) > 0 {
		return ": an exclusive lock of " + e.Waiting[0].Path + " is waited for"
	}
	if len(all) == 0 {
		return ""
	}
	l := all[0]
	text := fmt.Sprintf(": %s, %s, depth %s", l.Path, l.Mode, l.Depth)
	if len(l.Owner) > 0 {
		text += ", by " + string(l.Owner)
	}
	if more := e.Len() + e.More - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}
