package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

// A pathLsCmd is `mongolock paths ls`.
type pathLsCmd struct {
	place
	Path string `arg:"" optional:"" help:"Only locks that overlap this path."`
}

// A pathView is a lock as it is shown. It has no token: that is as good as the lock.
type pathView struct {
	Path     string         `json:"path"`
	Mode     pathlock.Mode  `json:"mode"`
	Depth    pathlock.Depth `json:"depth"`
	Owner    string         `json:"owner,omitempty"`
	Since    time.Time      `json:"since"`
	ExpireAt time.Time      `json:"expireAt,omitzero"` // none for a lock without end
	Left     float64        `json:"leftSeconds,omitempty"`
}

func viewOfLock(l pathlock.Lock) pathView {
	v := pathView{Path: l.Path, Mode: l.Mode, Depth: l.Depth, Owner: string(l.Owner), Since: l.Since.UTC()}
	if l.Left != pathlock.Infinite {
		v.Left, v.ExpireAt = l.Left.Seconds(), l.ExpireAt.UTC()
	}
	return v
}

func (c *pathLsCmd) check() error { return checkPath(c.Path) }

// Run lists a tree's locks.
func (c *pathLsCmd) Run(a *app) error {
	tree, err := c.open(a, false)
	if err != nil {
		return err
	}
	locks, err := around(a.ctx, tree, c.Path)
	if err != nil {
		return err
	}
	p := a.printer("path", "mode", "depth", "lease", "owner")
	p.none = func() {
		if c.coll == nil || !a.missing(c.coll) {
			a.say("nothing is locked in the tree %s", c.Tree)
		}
	}
	for _, l := range locks {
		v := viewOfLock(l)
		left := "without end"
		if l.Left != pathlock.Infinite {
			left = span(l.Left) + " left"
		}
		if err := p.row(v, v.Path, string(v.Mode), string(v.Depth), left, v.Owner); err != nil {
			return err
		}
	}
	return p.flush()
}

// around returns the locks above, on and below a path, or all locks if the path is empty.
func around(ctx context.Context, tree *pathlock.Tree, path string) ([]pathlock.Lock, error) {
	if path == "" {
		return tree.Locks(ctx)
	}
	found, err := tree.Affecting(ctx, path, pathlock.Infinity)
	return slices.Concat(found.Parents, found.Same, found.Children), err
}

// A pathBreakCmd is `mongolock paths break`.
type pathBreakCmd struct {
	place
	Path  string `arg:"" help:"The path."`
	Below bool   `help:"Also break locks below it."`
	Yes   bool   `short:"y" help:"Do not ask."`
}

// Help says what break does.
func (*pathBreakCmd) Help() string {
	return `The locks on the path are removed at once. Their holders learn of it at their next refresh,
a third of their TTL away, and may still work while the next holder begins. They are not told
why.`
}

func (c *pathBreakCmd) check() error { return checkPath(c.Path) }

// Run breaks the locks of a path.
func (c *pathBreakCmd) Run(a *app) error {
	tree, err := c.open(a, false)
	if err != nil {
		return err
	}
	depth := pathlock.Zero
	if c.Below {
		depth = pathlock.Infinity
	}
	found, err := tree.Affecting(a.ctx, c.Path, depth)
	if err != nil {
		return err
	}
	locks := slices.Concat(found.Same, found.Children)
	if len(locks) == 0 {
		return exitf(exitNothing, "nobody holds %s", c.Path)
	}
	if !c.Yes {
		var lines []string
		for _, l := range locks {
			lines = append(lines, fmt.Sprintf("%s is held by %s for %s", l.Path, l.Owner, span(heldFor(l))))
		}
		if err := a.ask(lines...); err != nil {
			return err
		}
	}
	broken, unsaid := 0, error(nil)
	for _, l := range locks {
		switch err := tree.Release(a.ctx, l.Token); {
		case errors.Is(err, pathlock.ErrUnknownToken):
			continue // it has ended meanwhile
		case err != nil:
			return errors.Join(err, unsaid)
		}
		broken++
		if a.asJSON() {
			unsaid = errors.Join(unsaid, encode(a.stdout, viewOfLock(l)))
		} else {
			unsaid = errors.Join(unsaid, a.print("broke %s of %s", l.Path, l.Owner))
		}
	}
	if broken == 0 {
		return exitf(exitNothing, "nobody holds %s any more", c.Path)
	}
	return unsaid
}

// heldFor returns how long a lock that was read has been held. If it has an end, that and what is left
// tell the time of the storage's clock, which Since is of too.
func heldFor(l pathlock.Lock) time.Duration {
	if l.Left == pathlock.Infinite {
		return time.Since(l.Since)
	}
	return l.ExpireAt.Add(-l.Left).Sub(l.Since)
}
