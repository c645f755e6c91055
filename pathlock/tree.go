package pathlock

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
)

// A Tree is a set of paths and the locks on them. It is safe for concurrent use: a
// process needs one for each set. New makes one; Close it.
type Tree struct {
	name   string
	policy Policy
	alias  func(string) (string, error)
	engine engine
	hub    *hub
	seen   seen

	base       context.Context // ends when Close gives up waiting
	giveUp     context.CancelFunc
	background sync.WaitGroup
	mu         sync.Mutex // protects closed, and Add of background against its Wait
	closed     bool
}

// maxName is the largest size of a tree's name, in bytes.
const maxName = 128

// New returns the tree with that name in a storage. It sends nothing. A tree that was never
// written to is empty.
func New(storage Storage, name string, opts ...Option) (*Tree, error) {
	t := &Tree{name: name, policy: Limits{}.Pick}
	if err := errors.Join(checkTree(storage, name), apply("Option", t, opts)); err != nil {
		return nil, err
	}
	t.base, t.giveUp = context.WithCancel(context.Background())
	t.engine = storage.open(name)
	t.hub = newHub(t, t.engine.feed())
	t.seen.start(t)
	return t, nil
}

// Lock takes a lock without waiting. If other locks conflict, it returns a
// *ConflictError that lists them.
func (t *Tree) Lock(ctx context.Context, r Request) (Lock, error) {
	r, timeout, err := t.prepare(r)
	if err != nil {
		return Lock{}, err
	}
	ctx, end := t.observe(ctx, mongolock.OpAcquire, t.key(r.Path), r.Mode)
	l, err := t.lock(ctx, r, timeout, waitsNot)
	end(err)
	return l, err
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

// lock makes one attempt, under a new token.
func (t *Tree) lock(ctx context.Context, r Request, timeout time.Duration, w waiting) (Lock, error) {
	l := Lock{Token: newToken(), Path: r.Path, Mode: r.Mode, Depth: r.Depth, Timeout: timeout, Owner: r.Owner}
	return t.write(ctx, func(ctx context.Context) outcome { return t.engine.lock(t.count(ctx, callLock), r, l, w) }).answer()
}

// Refresh restarts a lock's time, and changes nothing else of it. The new time is what the
// tree's policy picks from timeouts, or without any the lock's own. A lock that has run out is
// not revived: the error is ErrUnknownToken.
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
	ctx, end := t.observe(ctx, mongolock.OpRenew, t.name, "")
	left := func() bool { return ctx.Err() != nil }
	l, err := t.write(ctx, func(ctx context.Context) outcome {
		return t.engine.refresh(t.count(ctx, callRefresh), token, picked, left)
	}).answer()
	end(lost(err))
	return l, err
}

// Release ends the lock that has a token. path is any path that the lock covers: a check
// against mistakes. It returns ErrUnknownToken if no lock has the token, ErrWrongPath for a
// path that the lock does not cover, and ErrWrongOwner if ByOwner names another owner.
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
	how.path = resolved
	ctx, end := t.observe(ctx, mongolock.OpRelease, t.key(resolved), "")
	err = t.write(ctx, func(ctx context.Context) outcome { return t.engine.release(t.count(ctx, callRelease), token, how) }).err
	end(err)
	return err
}

// Locks returns all locks of the tree, by path.
func (t *Tree) Locks(ctx context.Context) (all []Lock, err error) {
	err = t.view(ctx, part{all: true}, func(doc *Document, now Clock) { all = doc.all(now) })
	return all, err
}

// Affected returns the locks on a path. With WithParents it includes the locks above that reach
// the path, and with WithChildren those below it.
func (t *Tree) Affected(ctx context.Context, path string, opts ...AffectedOption) (a Affecting, err error) {
	var where scope
	if err := apply("AffectedOption", &where, opts); err != nil {
		return a, err
	}
	resolved, err := t.resolve(path)
	if err != nil {
		return a, err
	}
	p := part{at: []string{resolved}}
	if where.children {
		p.below = p.at
	}
	err = t.view(ctx, p, func(doc *Document, now Clock) { a = doc.affecting(resolved, now, where) })
	return a, err
}

// Close ends watches and waits, and waits for background work: at most ten seconds for the
// clean-up after calls whose outcome is unknown. Locks stay. Later calls return ErrClosed.
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
	t.seen.stop()
	return nil
}
