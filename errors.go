package mongolock

import (
	"github.com/mongolock/mongolock/internal/engine"
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
	ErrOutcomeUnknown = engine.ErrOutcomeUnknown

	// ErrNotApplied is joined to the store's error if a call failed and certainly left no
	// trace in the database. It may be repeated.
	ErrNotApplied = store.ErrNotApplied

	// ErrDisconnected is joined to the error of every call after the mongo.Client under this
	// client was disconnected. Close this client, and make a new one on a new mongo.Client.
	ErrDisconnected = store.ErrDisconnected

	// ErrReleased is returned by Err, Renew and Detach of a lease that was released.
	ErrReleased = engine.ErrReleased

	// ErrDetached is returned by Err, Renew, Detach and Release of a lease that was detached.
	// Another process may have resumed it.
	ErrDetached = engine.ErrDetached

	// ErrClosed is returned by the calls of a client that was closed or is shutting down, and
	// by Err of the leases that the closing ended.
	ErrClosed = engine.ErrClosed

	// ErrLost is returned by Err, Renew, Detach and Release of a lease that its holder did
	// not end. Resume returns it if the ticket's lease is lost; Do and TryDo join it to fn's
	// error. Stop the work, and let the resource check the token: another process may hold
	// the key already.
	ErrLost = engine.ErrLost

	// ErrMaxHold is returned in place of ErrLost, which it matches, if the lease was held for
	// as long as MaxHold allows.
	ErrMaxHold = engine.ErrMaxHold

	// ErrStalled is returned in place of ErrLost, which it matches, if the work under the
	// lease has not called Progress for its MaxStall.
	ErrStalled = engine.ErrStalled

	// ErrBroken is returned in place of ErrLost, which it matches, if an operator broke the
	// lease. The error's text ends with the operator's reason.
	ErrBroken = engine.ErrBroken
)
