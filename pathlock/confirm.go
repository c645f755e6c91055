package pathlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Change is one thing that a writer wants to do to a path.
// Modify, AddTo and Delete make one.
type Change struct {
	Path string
	kind changeKind
}

type changeKind string

const (
	modifying changeKind = "modify" // its content or properties
	addingTo  changeKind = "add to" // its list of members, or remove from it
	deleting  changeKind = "delete" // the path and everything below it
)

// Modify changes the content of a path.
func Modify(path string) Change { return Change{path, modifying} }

// AddTo changes the list of members of a path: a member directly below it is added or
// removed.
func AddTo(path string) Change { return Change{path, addingTo} }

// Delete removes a path and everything below it.
func Delete(path string) Change { return Change{path, deleting} }

func (c Change) String() string { return fmt.Sprintf("%s %q", c.kind, c.Path) }

// Confirm returns nil if a writer with these tokens may make all of the changes. Otherwise it
// returns a *LockedError for the first change that the writer may not make. Tokens of other
// locks, or unknown ones, make no difference. All changes are judged by one state of the tree.
// To move a file:
//
//	err := tree.Confirm(ctx, tokens, pathlock.Delete("/a/f"), pathlock.AddTo("/b"), pathlock.Modify("/b/f"))
func (t *Tree) Confirm(ctx context.Context, tokens []string, changes ...Change) error {
	changes = slices.Clone(changes)
	for i, c := range changes {
		path, err := t.resolve(c.Path)
		if err != nil {
			return err
		}
		if c.kind == "" {
			return errors.New("pathlock: Confirm: a Change that none of Modify, AddTo and Delete made")
		}
		changes[i].Path = path
	}
	var locked *LockedError
	err := t.view(ctx, partOf(changes), func(doc *document, now interval) {
		locked = nil // a storage may call this twice
		for _, c := range changes {
			if locked = doc.confirm(c, tokens, now); locked != nil {
				return
			}
		}
	})
	if err == nil && locked != nil {
		return locked
	}
	return err
}

// partOf returns the locks that decide about changes.
func partOf(changes []Change) (p part) {
	for _, c := range changes {
		p.at = append(p.at, c.Path)
		if above, ok := parent(c.Path); ok && c.kind == deleting {
			p.at = append(p.at, above)
		}
		if c.kind == deleting {
			p.below = append(p.below, c.Path)
		}
	}
	return p
}

// confirm implements "What a lock guards" of the package comment.
func (d *document) confirm(c Change, tokens []string, now interval) *LockedError {
	if above, ok := parent(c.Path); ok && c.kind == deleting {
		if path, covering := d.uncovered(above, tokens, now, false); covering != nil {
			return &LockedError{Change: c, Path: path, Locks: covering}
		}
	}
	if path, covering := d.uncovered(c.Path, tokens, now, c.kind == deleting); covering != nil {
		return &LockedError{Change: c, Path: path, Locks: covering}
	}
	return nil
}

// uncovered finds a path that is locked by a lock with none of these tokens: the given path or,
// if deep, the first below it.
func (d *document) uncovered(path string, tokens []string, now interval, deep bool) (at string, missing []Lock) {
	here := d.affecting(path, now, scope{parents: true})
	missing, done := wanting(append(here.Parents, here.Same...), tokens, deep)
	if missing != nil || done || !deep {
		return path, missing
	}
	if n := d.locate(path, func(*node) {}); n != nil {
		n.uncoveredBelow(path, tokens, now, func(where string, locks []Lock) {
			if missing == nil || comparePaths(where, at) < 0 {
				at, missing = where, locks
			}
		})
	}
	return at, missing
}

// uncoveredBelow calls tell for the paths below a node that are locked by a lock with none of
// these tokens.
func (n *node) uncoveredBelow(above string, tokens []string, now interval, tell func(string, []Lock)) {
	for _, child := range n.children {
		path := strings.TrimSuffix(above, "/") + "/" + child.name
		var locks []Lock
		for _, e := range child.entries {
			if e.live(now.Earliest) {
				locks = append(locks, e.answer(now))
			}
		}
		missing, done := wanting(locks, tokens, true)
		switch {
		case missing != nil:
			tell(path, missing) // tell the path before those below it
		case !done:
			child.uncoveredBelow(path, tokens, now, tell)
		}
	}
}

// wanting returns the locks that cover a path if none of them has one of the tokens. A deep
// change needs a lock that reaches down, if there is one. That lock then covers everything
// below, and the search is done.
func wanting(covering []Lock, tokens []string, deep bool) (missing []Lock, done bool) {
	if deep {
		reaching := slices.DeleteFunc(slices.Clone(covering), func(l Lock) bool { return l.Depth != Infinity })
		if len(reaching) > 0 {
			covering, done = reaching, true
		}
	}
	if len(covering) == 0 || slices.ContainsFunc(covering, func(l Lock) bool { return slices.Contains(tokens, l.Token) }) {
		return nil, done
	}
	return covering, done
}
