package pathlock

import (
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/store"
)

var (
	// ErrConflict matches every ConflictError: Lock, and LockWait when its context
	// ends. Ask again later, or without waiting tell the user who is in the way.
	ErrConflict = errors.New("pathlock: conflict")

	// ErrLocked matches every LockedError: Confirm's no.
	ErrLocked = errors.New("pathlock: locked")

	// ErrUnknownToken answers Refresh and Release where no lock has the token: there
	// never was one, it was released, or its time is over. Lock anew.
	ErrUnknownToken = errors.New("pathlock: no lock has this token")

	// ErrWrongPath answers Release for a path that the lock does not cover. The lock
	// stays.
	ErrWrongPath = errors.New("pathlock: the lock does not cover this path")

	// ErrWrongOwner answers Release with a ByOwner that is not the lock's. The lock
	// stays.
	ErrWrongOwner = errors.New("pathlock: the lock has another owner")

	// ErrTooLarge answers Lock when the tree's document would come near the size that
	// the storage can keep. Release locks, or use a tree for each part.
	ErrTooLarge = errors.New("pathlock: too many locks in one tree")

	// ErrOutcomeUnknown is joined to the fault of a write that may have been applied.
	// The package comment says what happens then.
	ErrOutcomeUnknown = errors.New("pathlock: outcome unknown")

	// ErrClosed answers calls on a tree that was closed.
	ErrClosed = errors.New("pathlock: closed")

	// ErrForeign answers every call on a tree whose document or file is not of this
	// package, or of a newer version of it. Nothing ever changes that.
	ErrForeign = store.ErrForeign
)

// Affecting are locks by where they are, seen from one path: the ones above that
// reach it, those on it, and those below it.
type Affecting struct {
	Parents  []Lock // from the top down
	Same     []Lock // the oldest first
	Children []Lock // by path
}

// Len is how many they are.
func (a Affecting) Len() int { return len(a.Parents) + len(a.Same) + len(a.Children) }

// A ConflictError refuses a request because of the locks in it. It matches
// ErrConflict.
type ConflictError struct {
	Request Request // with its path in its one form
	Affecting
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("pathlock: %s lock of %q, depth %s, conflicts with %d above, %d on it and %d below",
		e.Request.Mode, e.Request.Path, e.Request.Depth, len(e.Parents), len(e.Same), len(e.Children))
}

// Is makes a ConflictError match ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// A LockedError is Confirm's no: to do Change the writer needs the token of one of
// Locks. It matches ErrLocked.
type LockedError struct {
	Change Change
	Path   string // the one that is covered: that of Change, its parent or one below
	Locks  []Lock
}

func (e *LockedError) Error() string {
	if e.Path != e.Change.Path {
		return fmt.Sprintf("pathlock: may not %s: %q is locked", e.Change, e.Path)
	}
	return fmt.Sprintf("pathlock: may not %s: it is locked", e.Change)
}

// Is makes a LockedError match ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }
