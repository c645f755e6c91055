package pathlock

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A Change is what a writer wants to do to a path.
type Change struct {
	Path string
	Kind ChangeKind
}

// ChangeKind is the kind of a Change.
type ChangeKind string

// The kinds.
const (
	Modifying ChangeKind = "modify" // its content, its properties
	AddingTo  ChangeKind = "add to" // or take from: its list of members
	Deleting  ChangeKind = "delete" // it and all that is below it
)

// Modify is a change of the content of a path.
func Modify(path string) Change { return Change{path, Modifying} }

// AddTo is a change of the list of members of a path: one is added directly below
// it, or removed.
func AddTo(path string) Change { return Change{path, AddingTo} }

// Delete is the end of a path and of all that is below it.
func Delete(path string) Change { return Change{path, Deleting} }

func (c Change) String() string { return fmt.Sprintf("%s %q", c.Kind, c.Path) }

// Confirm says whether a writer who shows these tokens may do all of the changes: nil,
// or a *LockedError for the first that he may not. Tokens of locks that are not there
// or elsewhere neither help nor harm. All is judged by one state of the tree. To move a
// file for instance:
//
//	err := tree.Confirm(ctx, tokens, pathlock.Delete("/a/f"), pathlock.AddTo("/b"), pathlock.Modify("/b/f"))
func (t *Tree) Confirm(ctx context.Context, tokens []string, changes ...Change) error {
	changes = slices.Clone(changes)
	for i, c := range changes {
		path, err := t.resolve(c.Path)
		if err != nil {
			return err
		}
		if !slices.Contains([]ChangeKind{Modifying, AddingTo, Deleting}, c.Kind) {
			return fmt.Errorf("pathlock: Change.Kind is %q: must be %q, %q or %q", c.Kind, Modifying, AddingTo, Deleting)
		}
		changes[i].Path = path
	}
	var locked *LockedError
	err := t.view(ctx, func(doc *Document, now Clock) {
		locked = nil // a storage may show it twice
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

// confirm follows "What a lock guards" of the package comment.
func (d *Document) confirm(c Change, tokens []string, now Clock) *LockedError {
	if above, ok := parent(c.Path); ok && c.Kind == Deleting {
		if path, covering := d.uncovered(above, tokens, now, false); covering != nil {
			return &LockedError{Change: c, Path: path, Locks: covering}
		}
	}
	if path, covering := d.uncovered(c.Path, tokens, now, c.Kind == Deleting); covering != nil {
		return &LockedError{Change: c, Path: path, Locks: covering}
	}
	return nil
}

// uncovered finds a path whose locks are not among those shown: the given one or, if
// deep, the first below it.
func (d *Document) uncovered(path string, tokens []string, now Clock, deep bool) (at string, missing []Lock) {
	here := d.affecting(path, now, scope{parents: true})
	missing, done := wanting(append(here.Parents, here.Same...), tokens, deep)
	if missing != nil || done || !deep {
		return path, missing
	}
	if n := d.index.locate(path, func(*node) {}); n != nil {
		n.uncoveredBelow(path, tokens, now, func(where string, locks []Lock) {
			if missing == nil || comparePaths(where, at) < 0 {
				at, missing = where, locks
			}
		})
	}
	return at, missing
}

// uncoveredBelow tells of the paths below a node whose locks are not shown.
func (n *node) uncoveredBelow(above string, tokens []string, now Clock, tell func(string, []Lock)) {
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
			tell(path, missing) // before any below it
		case !done:
			child.uncoveredBelow(path, tokens, now, tell)
		}
	}
}

// wanting are the locks covering a path of which one had to be shown and none is.
// Whoever changes what is below as well needs one that reaches down, if there is any;
// and with that he is done, as all below is covered by it.
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
