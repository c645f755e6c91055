package pathlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

const (
	callBound = 10 * time.Second      // bounds one call of the storage
	undoLeast = 50 * time.Millisecond // the pause between two attempts to take back, at first
	undoMost  = time.Second           // … and at most
	undoFor   = 10 * time.Minute      // bounds the attempts, for a lock without end
	tick      = server.Tick           // the resolution of a storage's times
	notifyFor = 2 * time.Second       // a notice is a hint
)

// answer returns the result of a request for a lock.
func (o outcome) answer() (Lock, error) {
	if o.err != nil {
		return Lock{}, o.err
	}
	return o.granted(), nil
}

// granted returns the lock with the time that it certainly has left. That is counted from a
// time that the storage drew for this write, so a machine that was suspended in between is not
// deceived.
func (o outcome) granted() Lock {
	l := o.lock.copied()
	switch {
	case l.ExpireAt.IsZero():
		l.Left = Infinite
	case o.exact:
		l.Left = min(l.Timeout, l.ExpireAt.Sub(o.at))
	default:
		l.Left = server.Left(l.Timeout, 0, 0, l.ExpireAt, o.at)
	}
	return l
}

// enter refuses calls on a closed tree, or with a context that has ended.
func (t *Tree) enter(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	return notStarted(ctx)
}

func (t *Tree) view(ctx context.Context, p part, look func(*document, interval)) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	return wrap(t.store.view(ctx, p, look))
}

// write runs one request that writes. If it adds a lock after its caller has left, the lock is
// removed again.
func (t *Tree) write(ctx context.Context, step func(context.Context) outcome) outcome {
	if err := t.enter(ctx); err != nil {
		return outcome{err: err}
	}
	if t.store.prompt() {
		o := t.writeNow(ctx, step)
		if o.claims != "" && o.fault != nil {
			t.undo(t.claimed(o.claims), o.lock.Timeout)
		}
		return o
	}
	answer := make(chan outcome, 1)
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), callBound)
	ok := t.background.Go(func() {
		defer cancel()
		o := t.writeNow(own, step)
		answer <- o
		if o.claims == "" {
			return
		}
		unseen := o.fault != nil || o.left
		if ctx.Err() != nil && o.err == nil {
			select {
			case <-answer: // the caller has left without the token
				unseen = true
			default:
			}
		}
		if unseen { // done here, so that Close waits for it
			t.takeBack(t.claimed(o.claims), o.lock.Timeout)
		}
	})
	if !ok {
		cancel()
		return outcome{err: ErrClosed}
	}
	select {
	case o := <-answer:
		return o
	case <-ctx.Done():
	}
	select {
	case o := <-answer: // both happened at once
		return o
	default:
		return outcome{err: fmt.Errorf("pathlock: %w", context.Cause(ctx))}
	}
}

// writeNow runs a request, and wakes waiters.
func (t *Tree) writeNow(ctx context.Context, step func(context.Context) outcome) outcome {
	o := step(ctx)
	if o.fault != nil {
		o.err = wrap(o.fault)
		if sure(o.err) {
			o.claims = ""
		} else {
			o.err = fmt.Errorf("%w (%w)", o.err, ErrOutcomeUnknown)
		}
		return o
	}
	if o.changed {
		t.hub.wrote(ctx)
	}
	if o.revived != nil {
		// The storage's clock shows that this was written after the lock had run out, so others
		// may have been told that it is gone.
		t.undo(o.revived, o.lock.Timeout)
		return outcome{err: ErrUnknownToken}
	}
	return o
}

// A removal removes a lock that will not be used. It is called again until it is settled.
type removal func(context.Context) (settled bool, err error)

// claimed removes the lock of a claim.
func (t *Tree) claimed(token string) removal {
	return func(ctx context.Context) (bool, error) { return t.store.takeBack(ctx, token) }
}

// undo removes a lock in the background.
func (t *Tree) undo(remove removal, timeout time.Duration) {
	t.background.Run(func() { t.takeBack(remove, timeout) })
}

// takeBack removes a lock, and repeats that until it is settled, or until the lock would have
// run out.
func (t *Tree) takeBack(remove removal, timeout time.Duration) {
	if timeout == Infinite || timeout > undoFor {
		timeout = undoFor
	}
	whole, cancel := context.WithTimeout(t.background.Base(), timeout)
	defer cancel()
	t.seen.cleanUps.Add(1)
	defer t.seen.cleanUps.Add(-1)
	for pause := undoLeast; ; pause = min(2*pause, undoMost) {
		ctx, cancel := context.WithTimeout(whole, callBound)
		settled, err := remove(ctx)
		cancel()
		if err == nil {
			t.hub.wrote(whole)
		}
		if settled || errors.Is(err, ErrForeign) || !backoff.Sleep(whole, pause) {
			return
		}
	}
}

// sure reports whether a storage's error says that nothing was written, and nothing will be.
func sure(err error) bool {
	return errors.Is(err, store.ErrNotApplied) || errors.Is(err, ErrForeign) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrClosed)
}

// wrap prefixes the package's name, once.
func wrap(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "pathlock: ") {
		return err
	}
	return fmt.Errorf("pathlock: %w", err)
}

func checkTree(storage Storage, name string) error {
	var missing error
	if storage == nil {
		missing = errors.New("pathlock: New: the storage is nil")
	}
	return errors.Join(missing, checkName(name))
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("pathlock: New: the name of the tree is empty")
	case len(name) > maxName:
		return fmt.Errorf("pathlock: New: the name of the tree has %d bytes: at most %d", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("pathlock: New: the name of the tree, %q, is not valid UTF-8 without NUL", name)
	}
	return nil
}
