package pathlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/store"
)

// A Tree is a set of paths and the locks on them. It is safe for concurrent use: a
// process needs one for each set. New makes one; Close it.
type Tree struct {
	storage Storage
	name    string
	policy  Policy
	alias   func(string) (string, error)
	hub     *hub

	base       context.Context // ends when Close gives up waiting
	giveUp     context.CancelFunc
	background sync.WaitGroup
	mu         sync.Mutex // protects closed, and Add of background against its Wait
	closed     bool
}

// maxName is the largest size of a tree's name, in bytes.
const maxName = 128

// New returns the tree of that name in a storage. It sends nothing. A tree that nobody
// has written to is empty.
func New(storage Storage, name string, opts ...Option) (*Tree, error) {
	t := &Tree{storage: storage, name: name, policy: Limits{}.Pick}
	if err := errors.Join(checkTree(storage, name), apply("Option", t, opts)); err != nil {
		return nil, err
	}
	t.base, t.giveUp = context.WithCancel(context.Background())
	feed, _ := storage.(store.Feed)
	t.hub = newHub(t, feed)
	return t, nil
}

// Lock takes a lock without waiting. If other locks conflict, it returns a
// *ConflictError that lists them.
func (t *Tree) Lock(ctx context.Context, r Request) (Lock, error) {
	r, timeout, err := t.prepare(r)
	if err != nil {
		return Lock{}, err
	}
	return t.lock(ctx, r, timeout, false)
}

// prepare checks a request, and settles its path and timeout.
func (t *Tree) prepare(r Request) (Request, time.Duration, error) {
	r = r.filled()
	if err := r.check(); err != nil {
		return r, 0, err
	}
	path, err := t.resolve(r.Path)
	if err != nil {
		return r, 0, err
	}
	r.Path, r.Owner = path, bytes.Clone(r.Owner)
	timeout, err := t.pick(r.Timeouts)
	return r, timeout, err
}

// lock makes one attempt, under a new token. With word it notes in the tree, if it is
// refused, that somebody waits.
func (t *Tree) lock(ctx context.Context, r Request, timeout time.Duration, word bool) (Lock, error) {
	l := Lock{Token: newToken(), Path: r.Path, Mode: r.Mode, Depth: r.Depth, Timeout: timeout, Owner: r.Owner}
	o := t.write(ctx, func(doc *Document, now Clock) (Edit, outcome) {
		if c := doc.conflicts(r, now); c.Len() > 0 {
			var e Edit
			if word {
				doc.leaveWord(&e, now)
			}
			return e, outcome{err: &ConflictError{Request: r, Affecting: c}}
		}
		l := l
		l.Since, l.ExpireAt = mongoclock.Ceil(now.Latest), now.end(timeout)
		e := doc.begin(now)
		e.Put = append(e.Put, l)
		doc.log(&e, now, Added, l, l.Since)
		return e, outcome{lock: l, exact: now.exact()}
	}, l.Token)
	if o.err != nil {
		return Lock{}, o.err
	}
	return o.granted(), nil
}

// Refresh restarts a lock's time, and changes nothing else of it. The new time is what
// the tree's policy picks from timeouts, or without any the lock's own. A lock that has
// run out is not revived: the error is ErrUnknownToken.
func (t *Tree) Refresh(ctx context.Context, token string, timeouts ...time.Duration) (Lock, error) {
	if err := checkTimeouts("timeouts", timeouts); err != nil {
		return Lock{}, err
	}
	picked := time.Duration(0)
	if len(timeouts) > 0 {
		var err error
		if picked, err = t.pick(timeouts); err != nil {
			return Lock{}, err
		}
	}
	o := t.write(ctx, func(doc *Document, now Clock) (Edit, outcome) {
		old := doc.live(token, now)
		if old == nil {
			return Edit{}, outcome{err: ErrUnknownToken}
		}
		l := *old
		l.Owner = bytes.Clone(l.Owner)
		if picked != 0 {
			l.Timeout = picked
		}
		l.ExpireAt = now.end(l.Timeout)
		e := doc.begin(now)
		e.Put = append(e.Put, l)
		return e, outcome{lock: l, was: old.ExpireAt, exact: now.exact()}
	}, "")
	switch {
	case o.err != nil:
		return Lock{}, o.err
	case !o.was.IsZero() && !o.at.Before(o.was):
		// The storage's clock says that this was written after the lock had run out, so
		// others may have been told that it is gone.
		t.undo(token, o.lock.Timeout)
		return Lock{}, ErrUnknownToken
	}
	return o.granted(), nil
}

// Release ends the lock that has a token. path is any path that the lock covers: a check
// against mistakes. It returns ErrUnknownToken if no lock has the token, ErrWrongPath
// for a path that the lock does not cover, and ErrWrongOwner if ByOwner names another
// owner.
func (t *Tree) Release(ctx context.Context, path, token string, opts ...ReleaseOption) error {
	var how release
	if err := apply("ReleaseOption", &how, opts); err != nil {
		return err
	}
	clean, err := Clean(path)
	if err != nil && !how.force {
		return err
	}
	resolved, err := t.resolve(clean)
	if err != nil {
		how.anyPath = true // the alias cannot tell; the token can
	}
	return t.write(ctx, func(doc *Document, now Clock) (Edit, outcome) {
		l := doc.live(token, now)
		switch {
		case l == nil:
			return Edit{}, outcome{err: ErrUnknownToken}
		case how.force:
		case !how.anyPath && !l.Covers(resolved):
			return Edit{}, outcome{err: fmt.Errorf("%w: %q, but %q, depth %s", ErrWrongPath, resolved, l.Path, l.Depth)}
		case how.askOwner && !bytes.Equal(how.owner, l.Owner):
			return Edit{}, outcome{err: fmt.Errorf("%w: of %q", ErrWrongOwner, l.Path)}
		}
		e := doc.begin(now)
		e.Drop = append(e.Drop, token)
		doc.log(&e, now, Released, *l, now.Latest)
		return e, outcome{}
	}, "").err
}

// Locks returns all locks of the tree, by path.
func (t *Tree) Locks(ctx context.Context) (all []Lock, err error) {
	err = t.view(ctx, func(doc *Document, now Clock) { all = doc.all(now) })
	return all, err
}

// Affected returns the locks on a path and, with WithParents and WithChildren, those
// above that reach it and those below.
func (t *Tree) Affected(ctx context.Context, path string, opts ...AffectedOption) (a Affecting, err error) {
	var where scope
	if err := apply("AffectedOption", &where, opts); err != nil {
		return a, err
	}
	resolved, err := t.resolve(path)
	if err != nil {
		return a, err
	}
	err = t.view(ctx, func(doc *Document, now Clock) { a = doc.affecting(resolved, now, where) })
	return a, err
}

// Close ends watches and waits, and waits for what runs in the background: at most ten
// seconds for the clean-up after calls whose outcome is unknown. Locks stay. Later calls
// return ErrClosed.
func (t *Tree) Close() error {
	t.mu.Lock()
	was := t.closed
	t.closed = true
	t.mu.Unlock()
	if was {
		return nil
	}
	t.hub.close()
	timer := time.AfterFunc(callBound, t.giveUp)
	t.background.Wait()
	timer.Stop()
	t.giveUp()
	return nil
}
