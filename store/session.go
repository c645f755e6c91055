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
	Left time.Duration // the session is honoured for this long, counted from the start of the call

	// Broken has the holders of the session that an operator broke: their IDs, with the
	// reasons. The same holder may be in several answers.
	Broken map[string]string
}

// Sessions is a store whose holders can be kept by a session, at one renewal for all of
// them. It is optional.
//
// A holder under a session has two ends: its own, and the session's. It is over when both have
// passed. A session is over for good once it has run out and a store relied on that, once it
// was ended, or once its record is missing. From then on no renewal revives it.
type Sessions interface {
	// BeginSession begins a session. Left counts from the start of the call. After an error the
	// session may have begun all the same; then it is not used, and runs out.
	BeginSession(ctx context.Context, s Session) (left time.Duration, err error)

	// RenewSession restarts the TTL of a session. The answer is ErrGone if the session is
	// over or absent.
	RenewSession(ctx context.Context, s Session) (SessionRenewed, error)

	// EndSession ends a session for good. It is no error if the session is over.
	EndSession(ctx context.Context, id string) error

	// Sweep removes the holders of sessions that are over and that this store knows of: those
	// that it ended, or relied on to be over. It returns the keys that waiters may want. It
	// removes no holder before the holder's own end.
	Sweep(ctx context.Context) (freed []string, err error)
}

// SessionsOf returns the Sessions of a store, or of the store that it wraps (by a method
// Unwrap() Store). It returns nil if neither has them.
func SessionsOf(s Store) Sessions {
	sessions, _ := As[Sessions](s)
	return sessions
}
