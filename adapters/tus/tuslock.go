// Package tuslock is a locker for tusd: it locks uploads on MongoDB, so that several hosts can
// serve the same store of uploads.
//
//	locks, err := mongolock.New(db.Collection("locks"))
//	locker, err := tuslock.New(locks)
//	composer := handler.NewStoreComposer()
//	locker.UseIn(composer)
//
// A client whose connection broke comes back at once, perhaps to another host, while the first host
// still waits for the rest of the old request. The new request then asks the old one to stop, as
// the protocol of tusd wants it: the lease is told that it is wanted (mongolock.Yielding), and the
// first host breaks off what it reads and releases the lock. If a host dies its locks end with
// their TTL.
package tuslock

import (
	"context"
	"errors"
	"fmt"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// prefix comes before the ID of an upload in its key.
const prefix = "upload:"

// A Locker is a handler.Locker. New makes one.
type Locker struct {
	locks mongolock.Locker
	opts  []mongolock.AcquireOption
}

// New makes a Locker that locks with l. The options, TTL and Note for two, are those of each lease.
// An upload has one lock at a time: Shared and OneOf are refused.
func New(l mongolock.Locker, opts ...mongolock.AcquireOption) (*Locker, error) {
	if l == nil {
		return nil, errors.New("tuslock: New: the locker is nil")
	}
	opts = append([]mongolock.AcquireOption{mongolock.Yielding()}, opts...)
	if err := checkLease(opts); err != nil {
		return nil, err
	}
	return &Locker{l, opts}, nil
}

// checkLease asks a store in memory what the options of a lease come to. Those that share a key do not go with
// Yielding.
func checkLease(opts []mongolock.AcquireOption) error {
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.WithMargin(0))
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it is in memory
	if _, err := client.TryAcquire(context.Background(), prefix, opts...); err != nil {
		return fmt.Errorf("tuslock: New: %w", err)
	}
	return nil
}

// UseIn makes the handlers of a composer use this Locker.
func (l *Locker) UseIn(composer *handler.StoreComposer) { composer.UseLocker(l) }

// NewLock returns a lock of an upload, which is not locked yet.
func (l *Locker) NewLock(id string) (handler.Lock, error) { return &lock{of: l, key: prefix + id}, nil }

// A lock is one request's. tusd calls its methods one after the other.
type lock struct {
	of    *Locker
	key   string
	lease *mongolock.Lease
}

// Lock waits for the upload until ctx ends. requestUnlock is called once: when another request
// waits for the upload, when the lease is lost, or when its client is closed.
func (k *lock) Lock(ctx context.Context, requestUnlock func()) error {
	lease, err := k.of.locks.Acquire(ctx, k.key, k.of.opts...)
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, mongolock.ErrHeld)):
		return fmt.Errorf("%w: %w", handler.ErrLockTimeout, err)
	case err != nil:
		return err
	}
	k.lease = lease
	go func() {
		select {
		case <-lease.Wanted():
		case <-lease.Done():
		}
		if !errors.Is(lease.Err(), mongolock.ErrReleased) { // it is held, lost, or its client was closed
			requestUnlock()
		}
	}()
	return nil
}

// Unlock releases the lock. It returns an error that matches mongolock.ErrLost if the lease was lost
// before.
func (k *lock) Unlock() error {
	if k.lease == nil {
		return errors.New("tuslock: Unlock of a lock that is not locked")
	}
	return k.lease.Release()
}
