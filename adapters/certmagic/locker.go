package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// ErrNotLocked is returned by Unlock and RenewLockLease for a name that this Locker has not
// locked.
var ErrNotLocked = errors.New("certmagiclock: not locked by this process")

// A Locker implements certmagic.Locker, TryLocker and LockLeaseRenewer with leases.
// NewLocker makes one. It is safe for concurrent use.
type Locker struct {
	// Logger is told of locks that were lost, which CertMagic is not. It is slog.Default() at
	// first. Set it before the Locker is used.
	Logger *slog.Logger

	locks mongolock.Locker
	lease []mongolock.AcquireOption

	mu    sync.Mutex
	names map[string]*name
}

// A name is locked by one caller of this process at a time, even if its lease was lost
// meanwhile: an Unlock does not tell whose lock it is for.
type name struct {
	turn  chan struct{}    // has an element while a caller has its turn
	users int              // callers that have their turn or wait for it; protected by Locker.mu
	lease *mongolock.Lease // the lease of the caller that has its turn; nil until it is granted; protected by Locker.mu
}

var (
	_ certmagic.Locker           = (*Locker)(nil)
	_ certmagic.TryLocker        = (*Locker)(nil)
	_ certmagic.LockLeaseRenewer = (*Locker)(nil)
)

// prefix keeps the locks' keys apart from others in the collection.
const prefix = "certmagic/"

// NewLocker makes a Locker that locks with locks. It sends nothing yet. The options are those of
// each lock's lease: mongolock.TTL, Note, MaxWait. They add to those of the client. Shared and
// OneOf are refused: several processes would obtain one certificate at the same time.
func NewLocker(locks mongolock.Locker, opts ...mongolock.AcquireOption) (*Locker, error) {
	if locks == nil {
		return nil, errors.New("certmagiclock: NewLocker: the locker is nil")
	}
	if err := checkLease(opts); err != nil {
		return nil, err
	}
	return &Locker{Logger: slog.Default(), locks: locks, lease: opts, names: make(map[string]*name)}, nil
}

// checkLease asks a store in memory what the options of a lease come to.
func checkLease(opts []mongolock.AcquireOption) error {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.WithMargin(0))
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it is in memory
	if _, err := client.TryAcquire(ctx, "certificate", opts...); err != nil {
		return fmt.Errorf("certmagiclock: NewLocker: %w", err)
	}
	switch status, err := client.Inspect(ctx, "certificate"); {
	case err != nil:
		return err
	case status.Mode == store.Shared:
		return errors.New("certmagiclock: NewLocker: Shared(): several processes would obtain one certificate at the same time")
	case status.Mode == store.Permits:
		return errors.New("certmagiclock: NewLocker: OneOf: several processes would obtain one certificate at the same time")
	}
	return nil
}

// Lock waits until the lock of that name is granted, or ctx ends.
func (l *Locker) Lock(ctx context.Context, name string) error {
	n := l.enter(name)
	select {
	case n.turn <- struct{}{}:
	case <-ctx.Done():
		l.leave(name, n)
		return fmt.Errorf("certmagiclock: %q is locked in this process: %w", name, context.Cause(ctx))
	}
	lease, err := l.locks.Acquire(ctx, prefix+name, l.lease...)
	return l.granted(name, n, lease, err)
}

// TryLock asks for the lock once, and reports whether it was granted.
func (l *Locker) TryLock(ctx context.Context, name string) (bool, error) {
	n := l.enter(name)
	select {
	case n.turn <- struct{}{}:
	default:
		l.leave(name, n)
		return false, nil
	}
	lease, err := l.locks.TryAcquire(ctx, prefix+name, l.lease...)
	err = l.granted(name, n, lease, err)
	if errors.Is(err, mongolock.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// enter counts a caller that wants the name's turn.
func (l *Locker) enter(key string) *name {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[key]
	if n == nil {
		n = &name{turn: make(chan struct{}, 1)}
		l.names[key] = n
	}
	n.users++
	return n
}

// leave drops a name that no caller wants any more.
func (l *Locker) leave(key string, n *name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(l.names, key)
	}
}

// granted keeps the lease for Unlock, or ends the caller's turn.
func (l *Locker) granted(key string, n *name, lease *mongolock.Lease, err error) error {
	if err != nil {
		<-n.turn
		l.leave(key, n)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n.lease = lease
	return nil
}

// locked returns the lease that this process holds, or has lost but not unlocked.
func (l *Locker) locked(key string) (*name, *mongolock.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.names[key]; n != nil && n.lease != nil {
		return n, n.lease, nil
	}
	return nil, nil, fmt.Errorf("%w: %q", ErrNotLocked, key)
}

// take takes the lease of a name away, for Unlock. The caller's turn goes on.
func (l *Locker) take(key string) (*name, *mongolock.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[key]
	if n == nil || n.lease == nil {
		return nil, nil, fmt.Errorf("%w: %q", ErrNotLocked, key)
	}
	lease := n.lease
	n.lease = nil
	return n, lease, nil
}

// swap replaces one lease by another, and reports whether the first was still there.
func (l *Locker) swap(n *name, was, is *mongolock.Lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.lease != was {
		return false
	}
	n.lease = is
	return true
}

// Unlock releases the lock. It ignores the end of its context, because a release is bounded by
// itself. A lock that was lost counts as unlocked, which is logged and not an error. After
// another error the name is unlocked in this process all the same, because CertMagic does not call
// Unlock again: the release goes on in the background, and other processes are granted the lock
// when it has succeeded, or one TTL later.
func (l *Locker) Unlock(_ context.Context, name string) error {
	n, lease, err := l.take(name)
	if err != nil {
		return err
	}
	err = lease.Release()
	<-n.turn
	l.leave(name, n)
	if errors.Is(err, mongolock.ErrLost) {
		l.Logger.Warn("certmagiclock: the lock was lost while it was held", "lease", lease, "error", err)
		return nil
	}
	return err
}

// RenewLockLease makes sure that the lock is held, before CertMagic works under it. Leases
// are renewed in the background, so the duration has no influence. If the lease was lost,
// RenewLockLease asks for the lock again, once.
func (l *Locker) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	n, lease, err := l.locked(name)
	if err != nil {
		return err
	}
	err = lease.Renew(ctx)
	if err == nil || lease.Err() == nil {
		return err
	}
	again, taken := l.locks.TryAcquire(ctx, prefix+name, l.lease...)
	if taken != nil {
		return fmt.Errorf("%w; and to take the lock again: %w", err, taken)
	}
	l.Logger.Warn("certmagiclock: the lock was lost, and is taken again", "lease", again, "error", err)
	if !l.swap(n, lease, again) { // unlocked meanwhile
		return errors.Join(fmt.Errorf("%w: %q", ErrNotLocked, name), again.Release())
	}
	return nil
}
