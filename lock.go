package mongolock

import (
	"context"
	"errors"
	"fmt"
)

// A Locker grants leases, as *Client does. It is not a sync.Locker: granting can
// fail. Fakes for tests delegate to a client on memstore (see mongolocktest) or
// return errors.
type Locker interface {
	// Acquire waits until the key is granted, ctx ends or MaxWait is over. Neither ctx
	// nor MaxWait limits the lease. It is not re-entrant: under a context that a lease of the
	// key made, as Do's, it does not wait, but returns ErrHeld.
	Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error)

	// TryAcquire asks for the key once. If others hold it, it returns a *HeldError.
	TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error)
}

// Do acquires key, runs fn with a context that ends with the lease, and releases.
//
// It returns the error of Acquire, or that of fn. If the lease ended while fn ran, the
// reason is joined to it (matching ErrLost, or ErrClosed). A failed release is only
// logged and retried: a finished job must not look failed. If fn panics, the lease is
// released too.
func Do(ctx context.Context, l Locker, key string, fn func(context.Context, *Lease) error, opts ...AcquireOption) error {
	if err := usable("Do", l, fn); err != nil {
		return err
	}
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// TryDo is Do without waiting: if others hold the key it returns false and no error.
func TryDo(ctx context.Context, l Locker, key string, fn func(context.Context, *Lease) error, opts ...AcquireOption) (ran bool, err error) {
	if err := usable("TryDo", l, fn); err != nil {
		return false, err
	}
	lease, err := l.TryAcquire(ctx, key, opts...)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, lease.run(ctx, fn)
}

func usable(caller string, l Locker, fn func(context.Context, *Lease) error) error {
	switch {
	case l == nil:
		return fmt.Errorf("mongolock: %s: the locker is nil", caller)
	case fn == nil:
		return fmt.Errorf("mongolock: %s: fn is nil", caller)
	}
	return nil
}

// run calls fn under the lease and gives the lease back, whatever fn does.
func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	defer func() {
		ended := l.Err() // asked before Release ends it
		switch releaseErr := l.Release(); {
		case ended != nil || releaseErr == nil:
		case errors.Is(releaseErr, ErrLost):
			ended = releaseErr // which was not known before
		default:
			l.holding.client.logger.Warn("mongolock: release failed, going on in the background", "lease", l, "error", releaseErr)
		}
		if ended != nil && !errors.Is(ended, ErrReleased) && !errors.Is(ended, ErrDetached) {
			err = errors.Join(err, ended)
		}
	}()
	return fn(l.Context(ctx), l)
}
