package mongolock

import (
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/store"
)

// HeldError says that others hold the key. It embeds the Status seen after the refusal,
// with the holders and the time they have left. It matches ErrHeld.
type HeldError = store.HeldError

// A Status shows a key as the store saw it, at one moment of the store's clock.
type Status = store.Status

// A Holder is one acquisition within a Status.
type Holder = store.Holder

// The errors that calls of this package return. Compare with errors.Is.
var (
	// ErrHeld is returned by TryAcquire if others hold the key, and by Acquire and AcquireAll
	// if they gave up waiting for it. If the context ended the wait, the error also matches
	// the context's; if MaxWait did, it matches no context's error. The error is a *HeldError.
	// Acquire returns it at once if the caller itself holds the key, as its context shows.
	ErrHeld = store.ErrHeld

	// ErrModeMismatch is returned by Acquire, AcquireAll and TryAcquire if readers hold the key and
	// OneOf asks for it, or the other way round. (Where one side is exclusive, the answer is ErrHeld.)
	// The error is a *store.MismatchError.
	ErrModeMismatch = store.ErrModeMismatch

	// ErrForeign is returned by every call on a key whose record is not this library's, or
	// was written by a newer version. The library never changes such a record: choose
	// another key, or another collection.
	ErrForeign = store.ErrForeign

	// ErrTooLarge is returned by Acquire, AcquireAll and TryAcquire if the key has as many
	// holders as its record can keep.
	ErrTooLarge = store.ErrTooLarge

	// ErrOutcomeUnknown is joined to the store's error if a call failed although the database
	// may have done what was asked. The client cleans up in the background. Until that is
	// done, or the TTL is over, the key may be taken although no process has a lease.
	ErrOutcomeUnknown = errors.New("mongolock: outcome unknown, being cleaned up")

	// ErrNotApplied is joined to the store's error if a call failed and certainly left no
	// trace in the database. It may be repeated.
	ErrNotApplied = store.ErrNotApplied

	// ErrDisconnected is joined to the error of every call after the mongo.Client under this
	// client was disconnected. Close this client, and make a new one on a new mongo.Client.
	ErrDisconnected = store.ErrDisconnected

	// ErrReleased is returned by Err, Renew and Detach of a lease that was released.
	ErrReleased = errors.New("mongolock: lease was released")

	// ErrDetached is returned by Err, Renew, Detach and Release of a lease that was detached.
	// Another process may have resumed it.
	ErrDetached = errors.New("mongolock: lease was detached")

	// ErrClosed is returned by the calls of a client that was closed or is shutting down, and
	// by Err of the leases that the closing ended.
	ErrClosed = errors.New("mongolock: client is closed")

	// ErrLost is returned by Err, Renew, Detach and Release of a lease that its holder did
	// not end. Resume returns it if the ticket's lease is lost; Do and TryDo join it to fn's
	// error. Stop the work, and let the resource check the token: another process may hold
	// the key already.
	ErrLost = errors.New("mongolock: lease is lost")

	// ErrMaxHold is returned in place of ErrLost, which it matches, if the lease was held for
	// as long as MaxHold allows.
	ErrMaxHold = fmt.Errorf("%w: held for its MaxHold", ErrLost)

	// ErrStalled is returned in place of ErrLost, which it matches, if the work under the
	// lease has not called Progress for its MaxStall.
	ErrStalled = fmt.Errorf("%w: no progress for its MaxStall", ErrLost)

	// ErrBroken is returned in place of ErrLost, which it matches, if an operator broke the
	// lease. The error's text ends with the operator's reason.
	ErrBroken = fmt.Errorf("%w: broken", ErrLost)
)

// The other reasons why a lease is lost. All match ErrLost.
var (
	errNotRenewed = fmt.Errorf("%w: not renewed in time", ErrLost)
	errGone       = fmt.Errorf("%w: no longer in the store", ErrLost)
)

// isLoss reports whether a lease that ended with cause was lost.
func isLoss(cause error) bool {
	return cause != ErrReleased && errors.Is(cause, ErrLost) //nolint:errorlint // the very cause, as it nearly always is
}

// A fault is a store's error, wrapped once. It adds the operation, the key and whether the
// outcome is known.
type fault struct {
	op, key string
	err     error
	unknown bool // the store may have done what was asked, or may still do it
}

func (f *fault) Error() string {
	s := fmt.Sprintf("mongolock: %s %q: %v", f.op, f.key, f.err)
	if f.key == "" {
		s = fmt.Sprintf("mongolock: %s: %v", f.op, f.err)
	}
	if f.unknown {
		s += " (outcome unknown, being cleaned up)"
	}
	return s
}

func (f *fault) Unwrap() []error {
	if f.unknown {
		return []error{f.err, ErrOutcomeUnknown}
	}
	return []error{f.err}
}

// failed wraps a store's error. A refusal stays as it is, because it names the key already.
func failed(op, key string, err error) error {
	switch {
	case errors.Is(err, store.ErrHeld), errors.Is(err, store.ErrModeMismatch):
		return err
	case store.IsCertain(err):
		return &fault{op: op, key: key, err: err}
	}
	return &fault{op: op, key: key, err: err, unknown: true}
}
