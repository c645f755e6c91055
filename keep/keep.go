package keep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
)

// tenure is how long a lease is kept although no waiter was heard of: the client may not hear of them.
const tenure = time.Minute

// A Key is used by one caller of this process at a time, under a lease that it keeps between the uses.
// It is safe for concurrent use. Make one of each key with [New], and share it.
type Key struct {
	locker mongolock.Locker
	name   string
	idle   time.Duration
	opts   []mongolock.AcquireOption

	life    context.Context // ends when Close begins
	shut    context.CancelFunc
	attends sync.WaitGroup
	// turn is full while somebody has the turn: a use, attend, Close. A channel serves in the order of arrival.
	turn chan struct{}

	// These belong to whoever has the turn.
	lease   *mongolock.Lease // nil: none is kept
	alive   context.Context  // ends with the lease, or as soon as the client shuts down
	granted time.Time
	used    time.Time // at the end of the last use
	failed  error     // what Close returns
}

// New makes a Key that is given up after idle without a use. It does not acquire the key yet. opts are those
// of its leases, without Shared and OneOf: TTL, Note, MaxWait for the wait for others, MaxHold and MaxStall
// for all uses of a lease together. Close the Key before the client that l is.
func New(l mongolock.Locker, key string, idle time.Duration, opts ...mongolock.AcquireOption) (*Key, error) {
	switch {
	case l == nil:
		return nil, errors.New("keep: the locker is nil")
	case key == "":
		return nil, errors.New("keep: the key is empty")
	case idle <= 0:
		return nil, fmt.Errorf("keep: idle is %v: must be positive", idle)
	}
	k := &Key{locker: l, name: key, idle: idle, turn: make(chan struct{}, 1)}
	k.opts = append(slices.Clone(opts), mongolock.Yielding()) // so that waiters elsewhere tell
	k.life, k.shut = context.WithCancel(context.Background())
	return k, nil
}

// Do calls fn under the lease when it is the caller's turn, and acquires the lease if none is kept. The
// end of ctx ends the wait. The context of fn ends with ctx, with the lease, at Close, and when fn returns.
//
// Do returns the error of Acquire, or that of fn. If the lease ended while fn ran, the reason is joined to it,
// as in mongolock.Do. From Close on it returns ErrClosed; under the context of a use of the same Key, ErrHeld.
func (k *Key) Do(ctx context.Context, fn func(context.Context, *mongolock.Lease) error) error {
	if fn == nil {
		return errors.New("keep: Do: fn is nil")
	}
	if over, ok := ctx.Value(k).(*atomic.Bool); ok && !over.Load() {
		return fmt.Errorf("keep: %q: the caller uses it already: %w", k.name, mongolock.ErrHeld)
	}
	over := new(atomic.Bool) // the use that begins here: its context has it under k
	ctx, end := context.WithCancelCause(context.WithValue(ctx, k, over))
	defer end(nil)
	defer context.AfterFunc(k.life, func() { end(mongolock.ErrClosed) })()
	if err := k.take(ctx); err != nil {
		return err
	}
	defer k.pass()
	if err := k.hold(ctx); err != nil {
		return err
	}
	defer end(errors.New("keep: the use is over")) // before the next use begins
	defer over.Store(true)
	return k.run(ctx, fn)
}

// take waits for the turn.
func (k *Key) take(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return k.ended(ctx)
	}
	err := k.ended(ctx) // it may have, although the turn came
	if err != nil {
		k.pass()
	}
	return err
}

func (k *Key) pass() { <-k.turn }

// ended returns an error if Close has begun or ctx has ended.
func (k *Key) ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case k.life.Err() != nil:
		err = mongolock.ErrClosed
	case err == nil:
		return nil
	case !errors.Is(cause, err):
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return fmt.Errorf("keep: waiting for %q: %w", k.name, err)
}

// hold makes sure that a lease is kept. It has the turn, as what follows.
func (k *Key) hold(ctx context.Context) error {
	if k.lease != nil && k.spent() {
		_ = k.giveUp()
	}
	if k.lease != nil {
		return nil
	}
	l, err := k.locker.Acquire(ctx, k.name, k.opts...)
	if err == nil {
		alive := l.Context(context.Background())
		k.lease, k.alive, k.granted, k.used = l, alive, time.Now(), time.Now()
		k.attends.Go(func() { k.attend(alive, l) })
	} else if k.life.Err() == nil {
		return err
	}
	return k.ended(ctx)
}

// run calls fn, and gives the lease up after it if another waits, or if it has ended.
func (k *Key) run(ctx context.Context, fn func(context.Context, *mongolock.Lease) error) (err error) {
	l := k.lease
	defer func() {
		ended := l.Err() // asked before Release ends it
		if k.used = time.Now(); k.spent() {
			if err := k.giveUp(); ended == nil && errors.Is(err, mongolock.ErrLost) {
				ended = err // which was not known before
			}
		}
		if ended != nil && !errors.Is(ended, mongolock.ErrReleased) && !errors.Is(ended, mongolock.ErrDetached) {
			err = errors.Join(err, ended)
		}
	}()
	return fn(l.Context(ctx), l)
}

// spent reports whether the lease that is kept must not be used again.
func (k *Key) spent() bool {
	select {
	case <-k.lease.Wanted():
		return true
	default:
		return k.alive.Err() != nil || time.Since(k.granted) >= tenure
	}
}

// giveUp releases the lease that is kept. If that fails the client goes on: only Close tells its caller.
func (k *Key) giveUp() error {
	l := k.lease
	k.lease = nil
	return l.Release()
}

// attend gives a lease up between two uses: when it is wanted, lost, or was kept or not used for long enough.
func (k *Key) attend(alive context.Context, l *mongolock.Lease) {
	left := min(k.idle, tenure)
	for over := false; !over; k.pass() {
		select {
		case <-l.Wanted():
		case <-alive.Done():
		case <-time.After(left):
		}
		if k.take(k.life) != nil { // Close gives it up
			return
		}
		left = min(k.idle-time.Since(k.used), tenure-time.Since(k.granted))
		if k.lease == l && (left <= 0 || k.spent()) {
			_ = k.giveUp()
		}
		over = k.lease != l
	}
}

// Close ends the waits and the context of the use under way, waits until that has returned, and gives
// the key up. It must not be called by a use.
func (k *Key) Close() error {
	k.shut()
	k.turn <- struct{}{}
	defer k.pass()
	if k.lease != nil {
		k.failed = k.giveUp()
	}
	k.attends.Wait()
	return k.failed
}
