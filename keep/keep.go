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

// tenure is how long a lease is used before it is given up although no waiter was heard of: the client
// may not hear of them.
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
	closing atomic.Bool
	closed  chan struct{} // closed when the first Close is about to return
	failed  error         // what that returns
	attends sync.WaitGroup

	// turn is full while somebody has the turn: a use, who gives the lease up, in the end Close for good.
	// A channel serves those who wait for it in the order in which they came.
	turn chan struct{}

	// These belong to whoever has the turn.
	lease   *mongolock.Lease // nil: none is kept
	granted time.Time
	used    time.Time // when the last use ended
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
	opts = append(slices.Clone(opts), mongolock.Yielding()) // so that waiters elsewhere tell
	k := &Key{locker: l, name: key, idle: idle, opts: opts, closed: make(chan struct{}), turn: make(chan struct{}, 1)}
	k.life, k.shut = context.WithCancel(context.Background())
	return k, nil
}

// A use is one call of Do, in the context of its function.
type use struct{ over atomic.Bool }

type useOf struct{ k *Key }

var errOver = errors.New("keep: the use is over")

// Do calls fn under the lease when it is the caller's turn, and acquires the lease if none is kept. The
// end of ctx ends the wait. The context of fn ends with ctx, with the lease, at Close, and when fn returns.
//
// Do returns the error of Acquire, or that of fn. If the lease ended while fn ran, the reason is joined
// to it, as in mongolock.Do. From Close on it returns ErrClosed. Under the context of a use of the same
// Key it returns ErrHeld at once.
func (k *Key) Do(ctx context.Context, fn func(context.Context, *mongolock.Lease) error) error {
	if fn == nil {
		return errors.New("keep: Do: fn is nil")
	}
	if outer, ok := ctx.Value(useOf{k}).(*use); ok && !outer.over.Load() {
		return fmt.Errorf("keep: %q: the caller uses it already: %w", k.name, mongolock.ErrHeld)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(errOver)
	defer context.AfterFunc(k.life, func() { end(mongolock.ErrClosed) })()
	if err := k.take(ctx); err != nil {
		return err
	}
	defer k.pass()
	if err := k.hold(ctx); err != nil {
		return err
	}
	this := new(use)
	defer this.over.Store(true)
	return k.run(context.WithValue(ctx, useOf{k}, this), fn)
}

// take waits for the turn.
func (k *Key) take(ctx context.Context) error {
	switch {
	case k.life.Err() != nil:
		return fmt.Errorf("keep: %q: %w", k.name, mongolock.ErrClosed)
	case ctx.Err() == nil:
		select {
		case k.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("keep: waiting for the uses of %q before: %w", k.name, context.Cause(ctx))
}

func (k *Key) pass() { <-k.turn }

// hold makes sure that a lease is kept. It has the turn, as what follows.
func (k *Key) hold(ctx context.Context) error {
	if k.lease != nil && k.spent() {
		_ = k.giveUp()
	}
	if k.lease != nil {
		return nil
	}
	l, err := k.locker.Acquire(ctx, k.name, k.opts...)
	if err != nil {
		if k.life.Err() != nil && !errors.Is(err, mongolock.ErrClosed) {
			err = fmt.Errorf("%w: %w", mongolock.ErrClosed, err)
		}
		return err
	}
	k.lease, k.granted, k.used = l, time.Now(), time.Now()
	k.attends.Go(func() { k.attend(l) })
	return nil
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
		return k.lease.Err() != nil || time.Since(k.granted) >= tenure
	}
}

// giveUp releases the lease that is kept. If that fails the client goes on in the background until it
// succeeds or the TTL is over, and logs the latter: only Close tells its caller.
func (k *Key) giveUp() error {
	l := k.lease
	k.lease = nil
	return l.Release()
}

// attend gives a lease up between two uses: when it is wanted, lost, or was not used for long enough.
func (k *Key) attend(l *mongolock.Lease) {
	idle := time.NewTimer(k.idle)
	defer idle.Stop()
	for {
		select {
		case <-l.Wanted():
		case <-l.Done():
		case <-idle.C:
		case <-k.life.Done():
		}
		if k.take(k.life) != nil { // Close gives it up
			return
		}
		left := k.idle - time.Since(k.used)
		if k.lease == l && (left <= 0 || k.spent()) {
			_ = k.giveUp()
		}
		over := k.lease != l
		k.pass()
		if over {
			return
		}
		idle.Reset(left)
	}
}

// Close ends the waits and the context of the use under way, waits until that has returned, and gives
// the key up. It must not be called by a use.
func (k *Key) Close() error {
	if !k.closing.Swap(true) {
		k.shut()
		k.turn <- struct{}{} // for good
		if k.lease != nil {
			k.failed = k.giveUp()
		}
		k.attends.Wait()
		close(k.closed)
	}
	<-k.closed
	return k.failed
}
