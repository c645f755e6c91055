package engine

import (
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/internal/errtext"
	"github.com/mongolock/mongolock/store"
)

// The errors that say how a call or a lease ended. The root package documents those that users compare with.
var (
	ErrOutcomeUnknown = errors.New("mongolock: outcome unknown, being cleaned up")
	ErrReleased       = errors.New("mongolock: lease was released")
	ErrDetached       = errors.New("mongolock: lease was detached")
	ErrClosed         = errors.New("mongolock: client is closed")
	ErrLost           = errors.New("mongolock: lease is lost")

	// These match ErrLost.
	ErrMaxHold    = fmt.Errorf("%w: held for its MaxHold", ErrLost)
	ErrStalled    = fmt.Errorf("%w: no progress for its MaxStall", ErrLost)
	ErrBroken     = fmt.Errorf("%w: broken", ErrLost)
	ErrNotRenewed = fmt.Errorf("%w: not renewed in time", ErrLost)
	ErrGone       = fmt.Errorf("%w: no longer in the store", ErrLost)

	ErrPatience  = errors.New("MaxWait exceeded")
	ErrUnsettled = errors.New("an earlier claim of this client is not settled yet")

	errLate = errors.New("granted too late to be of use")
	errFull = fmt.Errorf("%w: too many earlier claims of this client are not settled yet", store.ErrNotApplied)
)

// IsLoss reports whether a lease that ended with cause was lost.
func IsLoss(cause error) bool {
	return cause != ErrReleased && errors.Is(cause, ErrLost) //nolint:errorlint // the exact sentinel, as it nearly always is
}

// An undelivered says why a grant is being given back.
type undelivered struct{ err error }

func (u *undelivered) Error() string   { return u.err.Error() + ", being given back" }
func (u *undelivered) Unwrap() []error { return []error{u.err, ErrOutcomeUnknown} }

// A CallerGone says why a caller left without an answer: its context ended, MaxWait was exceeded, or the client was
// closed.
type CallerGone struct{ Err error } //nolint:errname // engine.CallerGone says it

func (g *CallerGone) Error() string { return g.Err.Error() }
func (g *CallerGone) Unwrap() error { return g.Err }

// A Fault is a store's error, wrapped once. It adds the operation, the key and whether the outcome is known.
type Fault struct { //nolint:errname // the word of the pages
	Op, Key string
	Err     error
	Unknown bool // the store may have done what was asked, or may still do it
}

func (f *Fault) Error() string {
	s := fmt.Sprintf("mongolock: %s %s: %v", f.Op, errtext.Key(f.Key), f.Err)
	if f.Key == "" {
		s = fmt.Sprintf("mongolock: %s: %v", f.Op, f.Err)
	}
	if f.Unknown {
		s += " (outcome unknown, being cleaned up)"
	}
	return errtext.Once(s)
}

func (f *Fault) Unwrap() []error {
	if f.Unknown {
		return []error{f.Err, ErrOutcomeUnknown}
	}
	return []error{f.Err}
}

// Failed wraps a store's error. A refusal stays as it is, because it names the key already.
func Failed(op, key string, err error) error {
	switch {
	case errors.Is(err, store.ErrHeld), errors.Is(err, store.ErrModeMismatch):
		return err
	case store.IsCertain(err):
		return &Fault{Op: op, Key: key, Err: err}
	}
	return &Fault{Op: op, Key: key, Err: err, Unknown: true}
}

// verdict returns why a lease ends whose renewal was answered with err, or nil if it goes on.
func verdict(err error) error {
	var broken *store.BrokenError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &broken):
		return fmt.Errorf("%w: %s", ErrBroken, broken.Reason)
	case errors.Is(err, store.ErrGone):
		return ErrGone
	case store.IsVerdict(err):
		return errtext.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}
