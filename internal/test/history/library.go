package history

import (
	"context"
	"errors"

	"github.com/mongolock/mongolock"
)

// Options returns the options of Acquire that take a key in this mode.
func (m Mode) Options() []mongolock.AcquireOption {
	switch {
	case m.Weight > 0:
		return []mongolock.AcquireOption{mongolock.OneOf(m.Limit), mongolock.Weight(m.Weight)}
	case m.Limit > 0:
		return []mongolock.AcquireOption{mongolock.OneOf(m.Limit)}
	case m.Shared:
		return []mongolock.AcquireOption{mongolock.Shared()}
	}
	return nil
}

// Failure returns the Note for an error of the library.
func Failure(err error) string {
	switch {
	case err == nil:
		return "neither a lease nor an error"
	case errors.Is(err, mongolock.ErrOutcomeUnknown):
		return Unknown
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return GaveUp
	case errors.Is(err, mongolock.ErrHeld), errors.Is(err, mongolock.ErrModeMismatch):
		return Held
	}
	return Sure
}

// Grant returns the event of a lease that answers a call.
func (e Event) Grant(l *mongolock.Lease) Event {
	e.Kind, e.ID, e.Token, e.Until = Granted, l.ID(), l.Token(), 0
	return e
}

// Failure returns the event of an error that answers a call.
func (e Event) Failure(err error) Event {
	e.Kind, e.Note, e.Until = Failed, Failure(err), 0
	return e
}
