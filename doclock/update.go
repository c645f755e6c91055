package doclock

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock"
)

// Update locks the document that filter names, has fn change its value, and saves and releases
// it. fn must only compute the new value. It must not send, write or call anything because it
// holds the lock, as a failover may take the lock away without a trace. To act while the
// document is locked, use Acquire.
//
// That makes it cheap: two commands, of which only the second waits for a majority. When Update
// returns nil, neither the change nor anything that fn has seen can be rolled back. No other
// holder's save came between the value that fn was given and the value that was written. See
// docs/internals/design.md, section 4.10.
//
// If the lock was lost meanwhile, nothing was saved, and Update begins again: fn may run
// several times, each time with the value that the document has then. That ends with ctx.
// Update waits for a locked document as Acquire does, and opts are those of Acquire. An error
// of fn is returned as it is, and a panic goes on; in both cases the document is released and
// nothing is saved.
//
// After an error that matches mongolock.ErrOutcomeUnknown the change may or may not have been
// saved, or may be saved later, as after SaveAndRelease. After any other error nothing was
// saved, and nothing will be. A transaction in ctx is refused: use Acquire and SaveAndRelease
// for one.
func (l *Locks[T]) Update(ctx context.Context, filter any, fn func(value *T) error, opts ...mongolock.AcquireOption) error {
	switch {
	case fn == nil:
		return errors.New("doclock: Update: fn is nil")
	case inTransaction(ctx):
		return errors.New("doclock: Update: ctx has a transaction: use Acquire, and SaveAndRelease in the transaction")
	}
	for repeated := false; ; {
		d, err := l.acquire(ctx, filter, nil, how{wait: true, soft: true}, opts)
		if errors.Is(err, mongolock.ErrOutcomeUnknown) && !repeated && ctx.Err() == nil {
			repeated = true // once, under a new ID: the driver must not
			continue
		}
		if err != nil {
			return &unsaved{err}
		}
		switch lost, err := d.update(ctx, fn); {
		case !lost:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%w; and: %w", err, contextError(ctx))
		}
	}
}

// update is one round under the lock. If the lock was lost, nothing is saved, and never will
// be, and the next round may succeed.
func (d *Document[T]) update(ctx context.Context, fn func(*T) error) (lost bool, err error) {
	defer func() { _ = d.lease.Release() }() // does nothing after a save that was answered
	if err := fn(&d.Value); err != nil {
		return false, err
	}
	e := new(ending)
	err = d.finish(ctx, "update", e)
	if errors.Is(err, mongolock.ErrOutcomeUnknown) {
		err = d.outcome("update", e, d.lease.Release()) // once more, because that carries e out as well
	}
	if err == nil || errors.Is(err, mongolock.ErrOutcomeUnknown) {
		return false, err
	}
	over := errors.Is(err, mongolock.ErrMaxHold) || errors.Is(err, mongolock.ErrStalled)
	return errors.Is(err, mongolock.ErrLost) && !over, &unsaved{err}
}

// An unsaved says why an Update has certainly saved nothing. The claim of its lock may be of
// unknown outcome, and is cleaned up; a caller of Update need not know that.
type unsaved struct{ err error }

func (u *unsaved) Error() string { return u.err.Error() }

func (u *unsaved) Is(target error) bool {
	return target != mongolock.ErrOutcomeUnknown && errors.Is(u.err, target)
}

func (u *unsaved) As(target any) bool { return errors.As(u.err, target) }
