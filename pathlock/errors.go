package pathlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

var (
	// ErrConflict matches every ConflictError. Lock returns it, and so does LockWait when its
	// context ends. Try again later.
	ErrConflict = errors.New("pathlock: conflict")

	// ErrLocked matches every LockedError, with which Confirm refuses a change.
	ErrLocked = errors.New("pathlock: locked")

	// ErrUnknownToken answers Refresh and Release if no lock has the token: it never existed,
	// was released, or ran out. Ask for a new lock.
	ErrUnknownToken = errors.New("pathlock: no lock has this token")

	// ErrTooLarge answers Lock if the tree would become too large for its storage.
	// Release locks, or use several trees.
	ErrTooLarge = errors.New("pathlock: too many locks in one tree")

	// ErrOutcomeUnknown is joined to the error of a write that may have been applied.
	// The package comment says what follows. It matches the error of the same name
	// in package mongolock.
	ErrOutcomeUnknown error = &matching{"pathlock: outcome unknown", mongolock.ErrOutcomeUnknown}

	// ErrClosed answers calls on a closed tree. It matches the error of the same name in
	// package mongolock.
	ErrClosed error = &matching{"pathlock: the tree is closed", mongolock.ErrClosed}

	// ErrForeign answers every call on a tree whose record was written by another program, or
	// by a newer version of this package. The record is never changed.
	ErrForeign = store.ErrForeign
)

// A matching error has a text of its own and matches another error.
type matching struct {
	text string
	same error
}

func (e *matching) Error() string        { return e.text }
func (e *matching) Is(target error) bool { return target == e.same }

// Affecting holds the locks that affect one path, by where they are.
type Affecting struct {
	Parents  []Lock // above the path, and reaching it; from the top down
	Same     []Lock // on the path; the oldest first
	Children []Lock // below the path; by path
}

// Len returns the number of locks.
func (a Affecting) Len() int { return len(a.Parents) + len(a.Same) + len(a.Children) }

// A ConflictError refuses a request because of the locks that it lists. It matches
// ErrConflict.
type ConflictError struct {
	Request Request // with its path in its clean form, and with its defaults filled in
	Affecting

	// Waiting are the exclusive requests that a shared one lets go first, with their paths and
	// depths: no more shared locks are granted where they wait. It may be that no lock is in the
	// way beside them.
	Waiting []Request

	// More is about how many further locks are in the way, which are not listed. At most
	// maxListed are listed. On MongoDB, LockWait and Hold do not list locks that were added some ten
	// milliseconds before, because these may yet be withdrawn; Lock and TryHold wait until that is
	// known. If it is 0, the lists have every lock that stood when the request came.
	More int

	again time.Duration // ask again no later than this; 0: when the locks' own times say
}

// maxListed is how many locks a ConflictError lists at most.
const maxListed = 1000

// conflict makes the error, and shortens its lists.
func conflict(r Request, a Affecting, more int) *ConflictError {
	room := maxListed
	for _, list := range []*[]Lock{&a.Parents, &a.Same, &a.Children} {
		if over := len(*list) - room; over > 0 {
			*list, more = (*list)[:room:room], more+over
		}
		room -= len(*list)
	}
	return &ConflictError{Request: r, Affecting: a, More: more}
}

// waitsFor adds the waiters that the request has to let go first.
func (e *ConflictError) waitsFor(first []reservation, now interval) *ConflictError {
	for _, v := range first {
		e.Waiting = append(e.Waiting, Request{Path: v.Path, Mode: Exclusive, Depth: v.Depth})
		e.soon(v.Until.Sub(now.Earliest) + tick)
	}
	return e
}

// soon says that it is worth asking again after so long.
func (e *ConflictError) soon(after time.Duration) {
	if e.again == 0 || after < e.again {
		e.again = after
	}
}

func (e *ConflictError) Error() string {
	text := fmt.Sprintf("pathlock: %s lock of %q, depth %s, conflicts with %d above, %d on it and %d below",
		e.Request.Mode, e.Request.Path, e.Request.Depth, len(e.Parents), len(e.Same), len(e.Children))
	if e.More > 0 {
		text += fmt.Sprintf(", and %d more", e.More)
	}
	if len(e.Waiting) > 0 {
		text += fmt.Sprintf(", and lets %d exclusive request(s) that wait go first", len(e.Waiting))
	}
	return text
}

// Is makes a ConflictError match ErrConflict, and mongolock.ErrHeld.
func (e *ConflictError) Is(target error) bool {
	return target == ErrConflict || target == mongolock.ErrHeld
}

// A LockedError refuses a change: the writer needs the token of one of Locks. It matches
// ErrLocked.
type LockedError struct {
	Change Change
	Path   string // the locked path: that of Change, its parent, or one below
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
