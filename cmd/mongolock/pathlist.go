package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock/pathlock"
	"golang.org/x/term"
)

// A pathLsCmd is `mongolock paths ls`.
type pathLsCmd struct {
	place
	Path   string `arg:"" optional:"" help:"Only locks that overlap this path."`
	Tokens bool   `help:"Show the locks' tokens: a token is as good as the lock."`
}

type pathView struct {
	Path     string         `json:"path"`
	Mode     pathlock.Mode  `json:"mode"`
	Depth    pathlock.Depth `json:"depth"`
	Owner    string         `json:"owner,omitempty"`
	Since    time.Time      `json:"since"`
	ExpireAt time.Time      `json:"expireAt,omitzero"` // none for a lock without end
	Left     float64        `json:"leftSeconds,omitempty"`
	Token    string         `json:"token,omitempty"`
}

func viewOfLock(l pathlock.Lock) pathView {
	v := pathView{Path: l.Path, Mode: l.Mode, Depth: l.Depth, Owner: string(l.Owner), Since: l.Since.UTC()}
	if l.Left != pathlock.Infinite {
		v.Left, v.ExpireAt = l.Left.Seconds(), l.ExpireAt.UTC()
	}
	return v
}

// Run lists a tree's locks.
func (c *pathLsCmd) Run(a *app) error {
	if err := checkPath(c.Path); err != nil {
		return err
	}
	ctx := context.Background()
	tree, shut, err := c.open(ctx, a)
	if err != nil {
		return err
	}
	defer shut()
	locks, err := around(ctx, tree, c.Path)
	if err != nil {
		return err
	}
	p := a.printer("path", "mode", "depth", "lease", "owner", "token")
	p.none = func() { c.nothing(ctx, a) }
	for _, l := range locks {
		v := viewOfLock(l)
		left := cell{"without end", yellow}
		if l.Left != pathlock.Infinite {
			left = cell{span(l.Left) + " left", green}
		}
		if c.Tokens {
			v.Token = l.Token
		}
		if err := p.row(v, cell{shown(v.Path), bold}, cell{text: string(v.Mode)}, cell{text: string(v.Depth)}, left, cell{text: shown(v.Owner)}, cell{text: v.Token}); err != nil {
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

// Run breaks the locks of a path.
func (c *pathBreakCmd) Run(a *app) error {
	if err := checkPath(c.Path); err != nil {
		return err
	}
	ctx := context.Background()
	tree, shut, err := c.open(ctx, a)
	if err != nil {
		return err
	}
	defer shut()
	depth := pathlock.Zero
	if c.Below {
		depth = pathlock.Infinity
	}
	found, err := tree.Affecting(ctx, c.Path, depth)
	if err != nil {
		return err
	}
	locks := slices.Concat(found.Same, found.Children)
	if len(locks) == 0 {
		return exitf(exitNothing, "nobody holds %s", shown(c.Path))
	}
	if !c.Yes {
		for _, l := range locks {
			fmt.Fprintf(a.stderr, "%s is held by %s for %s\n", shown(l.Path), shown(string(l.Owner)), span(heldFor(l)))
		}
		if err := ask(a); err != nil {
			return err
		}
	}
	p := a.printer()
	broken := false
	for _, l := range locks {
		switch err := tree.Release(ctx, l.Token); {
		case errors.Is(err, pathlock.ErrUnknownToken):
			continue // it has ended meanwhile
		case err != nil:
			return err
		}
		broken = true
		if p.asJSON {
			err = p.row(viewOfLock(l))
		} else {
			_, err = fmt.Fprintf(a.stdout, "broke %s of %s\n", shown(l.Path), shown(string(l.Owner)))
		}
		if err != nil {
			return err
		}
	}
	if !broken {
		return exitf(exitNothing, "nobody holds %s any more", shown(c.Path))
	}
	return nil
}

// heldFor returns how long a lock that was read has been held. If it has an end, that and what is left
// tell the time of the storage's clock, which Since is of too.
func heldFor(l pathlock.Lock) time.Duration {
	if l.Left == pathlock.Infinite {
		return time.Since(l.Since)
	}
	return l.ExpireAt.Add(-l.Left).Sub(l.Since)
}

// ask asks on the terminal.
func ask(a *app) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return exitf(exitDeclined, "standard input is not a terminal: nothing is broken without --yes")
	}
	fmt.Fprint(a.stderr, "Break it? [y/N] ")
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && answer == "" {
		return exitf(exitDeclined, "not confirmed")
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return exitf(exitDeclined, "not confirmed")
	}
	return nil
}
