package pathlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/store"
)

const (
	callBound = 10 * time.Second      // bounds one call of the storage
	undoLeast = 50 * time.Millisecond // between two attempts to take back
	undoMost  = time.Second           // …
	undoFor   = 10 * time.Minute      // bounds the attempts, for a lock without end
	tick      = mongoclock.Tick       // the resolution of a storage's times
	notifyFor = 2 * time.Second       // a notice is a hint
)

// An outcome is the result of a write.
type outcome struct {
	lock  Lock      // granted or refreshed
	was   time.Time // when it would have run out without this refresh
	exact bool      // the storage's clock is known exactly
	at    time.Time // what that clock showed at the write
	undo  bool      // it may have been applied: take it back
	err   error
}

// granted returns the lock with the time that is left for certain. It is counted from a
// time that the storage drew for this write: a machine that was suspended in between is
// not deceived.
func (o outcome) granted() Lock {
	l := o.lock.copied()
	switch {
	case l.ExpireAt.IsZero():
		l.Left = Infinite
	case o.exact:
		l.Left = min(l.Timeout, l.ExpireAt.Sub(o.at))
	default:
		l.Left = mongoclock.Left(l.Timeout, 0, 0, l.ExpireAt, o.at)
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

// spawn runs f in the background, unless the tree is closed.
func (t *Tree) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.background.Go(f)
	return true
}

func (t *Tree) view(ctx context.Context, look func(*Document, Clock)) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	return wrap(t.storage.View(ctx, t.name, look))
}

// write makes one edit. claimed is the token that the edit adds, if any: it is removed
// again if nobody will learn of it.
func (t *Tree) write(ctx context.Context, decide func(*Document, Clock) (Edit, outcome), claimed string) outcome {
	if err := t.enter(ctx); err != nil {
		return outcome{err: err}
	}
	if _, ok := t.storage.(Prompt); ok {
		o := t.writeNow(ctx, decide, claimed)
		if o.undo {
			t.undo(claimed, o.lock.Timeout)
		}
		return o
	}
	answer := make(chan outcome, 1)
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), callBound)
	ok := t.spawn(func() {
		defer cancel()
		o := t.writeNow(own, decide, claimed)
		answer <- o
		unseen := false
		if ctx.Err() != nil && o.err == nil && claimed != "" {
			select {
			case <-answer: // the caller has left: nobody has seen the token
				unseen = true
			default:
			}
		}
		if o.undo || unseen { // here, so that Close waits for it
			t.takeBack(claimed, o.lock.Timeout)
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

// writeNow makes one edit and wakes waiters and watchers.
func (t *Tree) writeNow(ctx context.Context, decide func(*Document, Clock) (Edit, outcome), claimed string) outcome {
	var o outcome
	var changed, heard bool
	at, err := t.storage.Update(ctx, t.name, func(doc *Document, now Clock) (Edit, error) {
		var e Edit
		e, o = decide(doc, now)
		changed = len(e.Drop) > 0 || len(e.Events) > 0 || o.lock.ExpireAt.Before(o.was)
		heard = doc.watched(now)
		return e, nil
	})
	if err != nil {
		err = wrap(err)
		if !sure(err) {
			return outcome{lock: o.lock, undo: claimed != "" && o.err == nil, err: fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown)}
		}
		return outcome{err: err}
	}
	o.at = at
	if changed {
		t.hub.wrote(ctx, heard)
	}
	return o
}

// undo removes a lock in the background.
func (t *Tree) undo(token string, timeout time.Duration) {
	if !t.spawn(func() { t.takeBack(token, timeout) }) {
		t.takeBack(token, timeout) // the tree is being closed
	}
}

// takeBack removes a token, and repeats that until it is acknowledged or the lock would
// have run out by itself. The edit writes a new revision also if the token is not there:
// a late command of the first write then finds another revision than it names.
func (t *Tree) takeBack(token string, timeout time.Duration) {
	if timeout == Infinite || timeout > undoFor {
		timeout = undoFor
	}
	whole, cancel := context.WithTimeout(t.base, timeout)
	defer cancel()
	for pause := undoLeast; ; pause = min(2*pause, undoMost) {
		ctx, cancel := context.WithTimeout(whole, callBound)
		_, err := t.storage.Update(ctx, t.name, func(doc *Document, now Clock) (Edit, error) {
			e := doc.begin(now)
			if l := doc.live(token, now); l != nil {
				doc.log(&e, now, Released, *l, now.Latest)
			}
			e.Drop, e.Touch = append(e.Drop, token), true
			return e, nil
		})
		cancel()
		if err == nil || errors.Is(err, ErrForeign) {
			t.hub.wrote(whole, true)
			return
		}
		select {
		case <-time.After(pause):
		case <-whole.Done():
			return
		}
	}
}

// sure reports whether an error of a storage says that nothing was written, and nothing
// will be.
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
