package mongolock

import (
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/store"
)

// HeldError says that others hold the key. It embeds the Status seen after the refusal,
// which tells who holds the key and for how long, and matches ErrHeld.
type HeldError = store.HeldError

// MismatchError says that the key's live holders have it in another mode than the one
// asked for. It matches ErrModeMismatch.
type MismatchError = store.MismatchError

// A Status is a key as the store saw it, by its own clock.
type Status = store.Status

// A Holder is one acquisition within a Status.
type Holder = store.Holder

var (
	// ErrHeld: TryAcquire found the key held, or Acquire gave up waiting for it
	// (then the error also matches the context's, unless MaxWait was over).
	ErrHeld = store.ErrHeld

	// ErrModeMismatch: the key is in use in another mode or with another limit.
	ErrModeMismatch = store.ErrModeMismatch

	// ErrForeign: the record stored under the key is not this library's, or is that of a
	// newer version. It is never changed: choose another key, or another collection.
	ErrForeign = store.ErrForeign

	// ErrTooLarge: the key has as many holders as its record can keep.
	ErrTooLarge = store.ErrTooLarge

	// ErrOutcomeUnknown: the call failed, and the database may have done what was asked.
	// The client cleans up in the background. Until that is done, or the TTL is over, the
	// key may be taken though nobody has a lease. It is joined to the store's error.
	ErrOutcomeUnknown = errors.New("mongolock: outcome unknown, being cleaned up")

	// ErrNotApplied: the call failed, and the database certainly did nothing. It may be
	// repeated. It is joined to the store's error.
	ErrNotApplied = store.ErrNotApplied

	// ErrDisconnected: the mongo.Client under this client was disconnected. No call
	// will succeed any more; make new ones, and close this client.
	ErrDisconnected = store.ErrDisconnected

	// ErrReleased: the lease was released. Returned by Lease.Err, and by calls on a
	// released lease.
	ErrReleased = errors.New("mongolock: lease was released")

	// ErrDetached: the lease was detached, and may go on in another process.
	ErrDetached = errors.New("mongolock: lease was detached")

	// ErrClosed: the client was closed or is shutting down.
	ErrClosed = errors.New("mongolock: client is closed")

	// ErrLost: the lease ended, and its holder did not end it. Stop the work, and let the
	// resource check the token: somebody else may hold the key already.
	ErrLost = errors.New("mongolock: lease is lost")

	// ErrMaxHold: the lease was held for as long as MaxHold allows. Matches ErrLost.
	ErrMaxHold = fmt.Errorf("%w: held for its MaxHold", ErrLost)

	// ErrStalled: the work under the lease has not called Progress for its MaxStall.
	// Matches ErrLost.
	ErrStalled = fmt.Errorf("%w: no progress for its MaxStall", ErrLost)

	// ErrBroken: an operator broke the lease; the reason follows. Matches ErrLost.
	ErrBroken = fmt.Errorf("%w: broken", ErrLost)
)

// Why a lease was lost; all match ErrLost.
var (
	errNotRenewed = fmt.Errorf("%w: not renewed in time", ErrLost)
	errGone       = fmt.Errorf("%w: no longer in the store", ErrLost)
)

// isLoss reports whether a lease that ended with cause was lost.
func isLoss(cause error) bool {
	return cause != ErrReleased && errors.Is(cause, ErrLost) //nolint:errorlint // the very cause, as it nearly always is
}

// A fault is a store's error, wrapped once, with the operation, the key and what the
// error means for the outcome.
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

// failed wraps a store's error. A refusal stays as it is: it names the key.
func failed(op, key string, err error) error {
	switch {
	case errors.Is(err, store.ErrHeld), errors.Is(err, store.ErrModeMismatch):
		return err
	case store.IsCertain(err):
		return &fault{op: op, key: key, err: err}
	}
	return &fault{op: op, key: key, err: err, unknown: true}
}
