package store

import (
	"context"
	"time"
)

// A Session stands for one process. It keeps every holder that was put under it (by a
// Renewal that names it) for as long as it is renewed itself.
type Session struct {
	ID    string        // never used twice
	Owner string        // the process, for people to read
	TTL   time.Duration // how long the session lasts unless renewed
}

// SessionRenewed answers a renewal of a session.
type SessionRenewed struct {
	Left time.Duration // honoured for this long, counted from the start of the call

	// Broken are the holders of the session that an operator broke, by their IDs, with the
	// reasons. One may be told again and again.
	Broken map[string]string
}

// Sessions is a store whose holders can be kept by a session, at one renewal for all of
// them. It is optional.
//
// A holder under a session has two ends: its own, and the session's. It is over when both
// are. A session is over for good once it has run out and somebody relied on that, once it
// was ended, or once its record is not there; from then on no renewal revives it.
type Sessions interface {
	// BeginSession begins a session. Left counts from the start of the call. After an
	// error the session may have begun all the same: it is not used, and runs out.
	BeginSession(ctx context.Context, s Session) (left time.Duration, err error)

	// RenewSession restarts the TTL of a session. The answer is ErrGone if the session is
	// over or absent.
	RenewSession(ctx context.Context, s Session) (SessionRenewed, error)

	// EndSession ends a session for good. It is no error if the session is over.
	EndSession(ctx context.Context, id string) error

	// Sweep removes holders that sessions left which are over, and that this store knows
	// of: those that it ended, or relied on to be over. It returns the keys for which
	// somebody may wait. No record of a holder is removed whose own end has yet to come.
	Sweep(ctx context.Context) (freed []string, err error)
}

// SessionsOf returns the Sessions of a store, or of the store that it wraps (by a method
// Unwrap() Store). It returns nil if neither has them.
func SessionsOf(s Store) Sessions { return of[Sessions](s) }
