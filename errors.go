package mongolock

import (
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/store"
)

// HeldError is the answer to a claim of a key that others hold. It embeds the
// Status seen after the refusal (who holds it, for how long) and matches ErrHeld.
type HeldError = store.HeldError

// MismatchError is the answer to a claim in another mode than that of the key's
// live holders. It matches ErrModeMismatch.
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

	// ErrForeign: what is stored under the key is not this library's, or a newer
	// version's. It is never changed; choose another key, or another collection.
	ErrForeign = store.ErrForeign

	// ErrTooLarge: the key has as many holders as its record can keep.
	ErrTooLarge = store.ErrTooLarge

	// ErrOutcomeUnknown is joined to a fault after which the database may have
	// done what was asked. The client cleans up in the background; until that is
	// done, or the TTL is over, the key may be taken by nobody.
	ErrOutcomeUnknown = errors.New("mongolock: outcome unknown, being cleaned up")

	// ErrDisconnected: the mongo.Client under this client was disconnected. No call
	// will succeed any more; make new ones, and close this client.
	ErrDisconnected = store.ErrDisconnected

	// ErrReleased: the lease was released. From Err, and from calls on it.
	ErrReleased = errors.New("mongolock: lease was released")

	// ErrDetached: the lease was detached, and may live on in another process.
	ErrDetached = errors.New("mongolock: lease was detached")

	// ErrClosed: the client was closed or is shutting down.
	ErrClosed = errors.New("mongolock: client is closed")

	// ErrLost: the lease ended without its holder's doing. Stop the work, and let
	// the resource check the token: somebody else may be at it already.
	ErrLost = errors.New("mongolock: lease is lost")

	// ErrMaxHold: the lease was held for as long as MaxHold allows. Matches ErrLost.
	ErrMaxHold = fmt.Errorf("%w: held for its MaxHold", ErrLost)

	// ErrBroken: an operator broke the lease; the reason follows. Matches ErrLost.
	ErrBroken = fmt.Errorf("%w: broken", ErrLost)
)

// What a lost lease died of, for the message; all match ErrLost.
var (
	errNotRenewed = fmt.Errorf("%w: not renewed in time", ErrLost)
	errGone       = fmt.Errorf("%w: no longer in the store", ErrLost)
)

// isLoss reports whether a lease that ended of cause was lost.
func isLoss(cause error) bool {
	return cause != ErrReleased && errors.Is(cause, ErrLost) //nolint:errorlint // the very cause, which nearly always it is
}

// A fault is a store's error, wrapped once with operation and key, and with what
// it means for the outcome.
type fault struct {
	op, key string
	err     error
	unknown bool // the store may have done what was asked, or may do it yet
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

// failed wraps what a store answered: a verdict speaks for itself.
func failed(op, key string, err error) error {
	switch {
	case errors.Is(err, store.ErrHeld), errors.Is(err, store.ErrModeMismatch):
		return err
	case store.IsCertain(err):
		return &fault{op: op, key: key, err: err}
	}
	return &fault{op: op, key: key, err: err, unknown: true}
}
