package pathlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// LockWait takes a lock, and waits while other locks conflict. When its context ends, the error
// matches the context's and, if a conflict was seen, ErrConflict; no lock is left behind. A
// failure of the storage fails the first attempt. A call that waits already goes on trying.
func (t *Tree) LockWait(ctx context.Context, r Request) (Lock, error) {
	r, timeout, err := t.prepare(r)
	if err != nil {
		return Lock{}, err
	}
	l, _, err := t.take(ctx, r, timeout, true)
	return l, err
}

func (t *Tree) await(ctx context.Context, r Request, timeout time.Duration) (_ Lock, sent monotonic.Moment, err error) {
	w := t.waits()
	defer func() { t.ended(w, err) }()
	woken, leave := t.hub.join() // before the first attempt: a later release wakes
	defer leave()
	var last error
	for poll := time.Duration(0); ; {
		sent := t.clock.Now()
		l, err := t.lock(ctx, r, timeout, w)
		if err == nil {
			return l, sent, nil
		}
		var conflict *ConflictError
		refused := errors.As(err, &conflict)
		switch {
		case ctx.Err() != nil, errors.Is(err, ErrClosed):
			if refused {
				last = err
			}
			return Lock{}, 0, gaveUp(ctx, last, err)
		case refused:
			last, w.again = err, true
		case last == nil || errors.Is(err, ErrForeign) || errors.Is(err, ErrTooLarge) || errors.Is(err, store.ErrDisconnected):
			return Lock{}, 0, err
		}
		if w.slept == nil {
			_, w.slept = t.observe(ctx, mongolock.OpWait, t.key(r.Path), r.Mode)
		}
		poll = t.hub.patience(poll)
		pause := backoff.Jitter(poll)
		if refused {
			pause = min(pause, conflict.next(), w.wakes())
		}
		if err := t.hub.sleep(ctx, woken, pause); err != nil {
			return Lock{}, 0, gaveUp(ctx, last, err)
		}
	}
}

// gaveUp joins the reason why the wait ended with the conflict.
func gaveUp(ctx context.Context, conflict, err error) error {
	if ctx.Err() != nil {
		err = fmt.Errorf("pathlock: gave up waiting: %w", context.Cause(ctx))
		if !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
	if conflict == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, conflict)
}

// next returns the time until the first lock in the way has run out.
func (e *ConflictError) next() time.Duration {
	next := pollLive
	if e.again > 0 {
		next = min(next, e.again)
	}
	for _, locks := range [][]Lock{e.Parents, e.Same, e.Children} {
		for _, l := range locks {
			if l.Left != Infinite {
				next = min(next, l.Left+tick)
			}
		}
	}
	return max(next, tick)
}
