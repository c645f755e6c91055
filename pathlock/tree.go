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

// A Tree is a set of paths and the locks on them. Make one per process and tree; it
// is safe for concurrent use. Close it.
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

// An Option is given to New.
type Option func(*Tree) error

// WithLimits sets the policy for timeouts to these limits.
func WithLimits(l Limits) Option {
	return func(t *Tree) error {
		t.policy = l.Pick
		return l.check()
	}
}

// WithPolicy sets the policy for timeouts. The default is that of Limits{}: the first
// wish that is not Infinite, or ten minutes.
func WithPolicy(p Policy) Option {
	return func(t *Tree) error {
		if p == nil {
			return errors.New("pathlock: WithPolicy: the policy is nil")
		}
		t.policy = p
		return nil
	}
}

// WithAlias sets a function that answers, for each path it is given in its one form,
// the path that it stands for: for trees that ignore case, have links, or mount one
// part in two places. It must answer the same in every process at all times, and its
// own answers unchanged. An error of it fails the call.
func WithAlias(alias func(path string) (string, error)) Option {
	return func(t *Tree) error {
		if alias == nil {
			return errors.New("pathlock: WithAlias: the function is nil")
		}
		t.alias = alias
		return nil
	}
}

// maxName is how many bytes the name of a tree may have.
const maxName = 128

// New is the tree of that name in a storage. It sends nothing yet: a tree that nobody
// has written is empty.
func New(storage Storage, name string, opts ...Option) (*Tree, error) {
	if storage == nil {
		return nil, errors.New("pathlock: New: the storage is nil")
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	t := &Tree{storage: storage, name: name, policy: Limits{}.Pick}
	for _, opt := range opts {
		if err := opt(t); err != nil {
			return nil, err
		}
	}
	t.base, t.giveUp = context.WithCancel(context.Background())
	feed, _ := storage.(store.Feed)
	t.hub = newHub(t, feed)
	return t, nil
}

// Lock asks for a lock and answers at once: the lock, or a *ConflictError that says
// which others are in the way.
func (t *Tree) Lock(ctx context.Context, r Request) (Lock, error) {
	r, timeout, err := t.prepare(r)
	if err != nil {
		return Lock{}, err
	}
	return t.lock(ctx, r, timeout, false)
}

// prepare checks a request and settles its path and timeout.
func (t *Tree) prepare(r Request) (Request, time.Duration, error) {
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

// lock makes one attempt under a new token. With word it says in the tree that
// somebody waits, should it be refused.
func (t *Tree) lock(ctx context.Context, r Request, timeout time.Duration, word bool) (Lock, error) {
	l := Lock{Token: newToken(), Path: r.Path, Mode: r.Mode, Depth: r.Depth, Timeout: timeout, Owner: r.Owner}
	o := t.write(ctx, func(doc *Document, now Clock) (Edit, outcome) {
		if c := doc.conflicts(r, now); c.Len() > 0 {
			var e Edit
			if word {
				e.Watched = doc.watch(now)
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

// Refresh gives a lock its time anew, counted from now: as long as the tree's policy
// picks from the wishes, or without any as long as it had. Nothing else of it changes.
// ErrUnknownToken if there is no such lock any more: what has run out stays so.
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
		// By the storage's clock it was written after the lock had run out: somebody may
		// have been told so already.
		t.undo(token, o.lock.Timeout)
		return Lock{}, ErrUnknownToken
	}
	return o.granted(), nil
}

// A ReleaseOption is given to Release.
type ReleaseOption func(*release)

type release struct {
	owner    []byte
	askOwner bool
	force    bool
}

// ByOwner lets a release go through only if the lock's owner is this, byte for byte.
func ByOwner(owner []byte) ReleaseOption {
	return func(r *release) { r.owner, r.askOwner = bytes.Clone(owner), true }
}

// Force releases whatever the path and the owner: for operators.
func Force() ReleaseOption { return func(r *release) { r.force = true } }

// Release ends a lock, named by its token and by any path that it covers. A token that
// no lock has, a path that it does not cover, and another owner than ByOwner says are
// errors of their own: ErrUnknownToken, ErrWrongPath, ErrWrongOwner.
func (t *Tree) Release(ctx context.Context, path, token string, opts ...ReleaseOption) error {
	var how release
	for _, opt := range opts {
		opt(&how)
	}
	resolved, err := t.resolve(path)
	if err != nil && !how.force {
		return err
	}
	return t.write(ctx, func(doc *Document, now Clock) (Edit, outcome) {
		l := doc.live(token, now)
		switch {
		case l == nil:
			return Edit{}, outcome{err: ErrUnknownToken}
		case how.force:
		case !l.Covers(resolved):
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

// Locks are all locks of the tree, by path.
func (t *Tree) Locks(ctx context.Context) (all []Lock, err error) {
	err = t.view(ctx, func(doc *Document, now Clock) { all = doc.all(now) })
	return all, err
}

// Affected are the locks that affect a path: those on it and, if asked for, those
// above that reach it and those below.
func (t *Tree) Affected(ctx context.Context, path string, children, parents bool) (a Affecting, err error) {
	resolved, err := t.resolve(path)
	if err != nil {
		return a, err
	}
	err = t.view(ctx, func(doc *Document, now Clock) {
		a = doc.affecting(resolved, now, scope{parents: parents, children: children})
	})
	return a, err
}

// Close ends what the tree does in the background, and waits for that: watches, waits,
// and for at most ten seconds the clean-up after calls whose outcome is unknown.
// Locks stay. Later calls answer ErrClosed.
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
