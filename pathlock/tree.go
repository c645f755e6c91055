package pathlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/background"
	"github.com/mongolock/mongolock/internal/monotonic"
)

// A Tree is a set of paths and the locks on them. It is safe for concurrent use: a
// process needs one for each set. New makes one; Close it.
type Tree struct {
	name   string
	limits Limits
	alias  func(string) (string, error)
	owner  []byte        // of requests that name none
	margin time.Duration // of a Hold; negative: the default
	logger *slog.Logger
	store  treeStore
	hub    *hub
	seen   seen

	background *background.Group // cut off when Close gives up waiting
	clock      monotonic.Clock

	mu      sync.Mutex // protects what follows
	holds   map[*Hold]bool
	closing bool // no more holds
	closed  bool // no more calls
}

// maxName is the largest size of a tree's name, in bytes.
const maxName = 128

// New returns the tree with that name in a storage. It sends nothing. A tree that was never
// written to is empty.
func New(storage Storage, name string, opts ...Option) (*Tree, error) {
	t := &Tree{name: name, limits: Limits{}.filled(), logger: slog.Default(), margin: -1,
		background: background.New(), holds: make(map[*Hold]bool), clock: monotonic.CountingSleep(monotonic.NewMeter())}
	if err := errors.Join(checkTree(storage, name), apply("Option", t, opts)); err != nil {
		return nil, err
	}
	t.store = storage.open(name, t.logger)
	t.hub = newHub(t, t.store.feed())
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
	l, _, err := t.take(ctx, r, timeout, false)
	return l, err
}

// take takes a lock, and returns when the request that was granted was sent.
func (t *Tree) take(ctx context.Context, r Request, timeout time.Duration, wait bool) (l Lock, sent monotonic.Moment, err error) {
	ctx, end := t.observe(ctx, mongolock.OpAcquire, t.key(r.Path), r.Mode)
	defer func() { end(err) }()
	if wait {
		return t.await(ctx, r, timeout)
	}
	sent = t.clock.Now()
	l, err = t.lock(ctx, r, timeout, nil)
	return l, sent, err
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
	if r.Owner == nil {
		r.Owner = t.owner
	}
	r.Path, r.Owner = path, bytes.Clone(r.Owner)
	return r, t.limits.pick(r.Timeouts), nil
}

// lock makes one attempt, under a new token.
func (t *Tree) lock(ctx context.Context, r Request, timeout time.Duration, w *waiter) (Lock, error) {
	l := Lock{Token: newToken(), Path: r.Path, Mode: r.Mode, Depth: r.Depth, Timeout: timeout, Owner: r.Owner}
	return t.write(ctx, func(ctx context.Context) outcome {
		o := t.store.lock(ctx, r, l, w)
		if w != nil && w.left() {
			t.unreserve(w)
		}
		return o
	}).answer()
}

// Refresh restarts a lock's time, and changes nothing else of it. The new time is what the
// tree's limits pick from timeouts, or without any the lock's own. A lock that has run out is
// not revived: the error is ErrUnknownToken. Do not shorten the time of a lock that a Hold has, in any
// process: the Hold does not learn of it, and trusts the time that it knows.
func (t *Tree) Refresh(ctx context.Context, token string, timeouts ...time.Duration) (Lock, error) {
	if err := checkTimeouts("timeouts", timeouts); err != nil {
		return Lock{}, err
	}
	picked := time.Duration(0)
	if len(timeouts) > 0 {
		picked = t.limits.pick(timeouts)
	}
	return t.refresh(ctx, token, picked, false)
}

// refresh restarts a lock's time, as that of a treeStore does.
func (t *Tree) refresh(ctx context.Context, token string, timeout time.Duration, least bool) (Lock, error) {
	ctx, end := t.observe(ctx, mongolock.OpRenew, t.name, "")
	left := func() bool { return ctx.Err() != nil }
	l, err := t.write(ctx, func(ctx context.Context) outcome {
		return t.store.refresh(ctx, token, timeout, least, left)
	}).answer()
	end(lost(err))
	return l, err
}

// Release ends the lock that has a token. It returns ErrUnknownToken if no lock has it.
func (t *Tree) Release(ctx context.Context, token string) error {
	ctx, end := t.observe(ctx, mongolock.OpRelease, t.name, "")
	err := t.write(ctx, func(ctx context.Context) outcome { return t.store.release(ctx, token) }).err
	end(err)
	return err
}

// Locks returns all locks of the tree, by path.
func (t *Tree) Locks(ctx context.Context) (all []Lock, err error) {
	err = t.view(ctx, part{all: true}, func(doc *document, now interval) { all = doc.all(now) })
	return all, err
}

// Affecting returns the locks that affect a path: those on it, those above that reach it and, with
// depth Infinity, those below.
func (t *Tree) Affecting(ctx context.Context, path string, depth Depth) (a Affecting, err error) {
	if depth = (Request{Depth: depth}).filled().Depth; depth != Zero && depth != Infinity {
		return a, fmt.Errorf("pathlock: Affecting: the depth is %q: must be %q or %q", depth, Zero, Infinity)
	}
	resolved, err := t.resolve(path)
	if err != nil {
		return a, err
	}
	p := part{at: []string{resolved}}
	if depth == Infinity {
		p.below = p.at
	}
	err = t.view(ctx, p, func(doc *document, now interval) {
		a = doc.affecting(resolved, now, scope{parents: true, children: depth == Infinity})
	})
	return a, err
}

// Close ends and releases the holds of this process, and ends its waits. It waits for
// background work: at most ten seconds for the clean-up after calls whose outcome is unknown. Other locks stay.
// Later calls return ErrClosed.
func (t *Tree) Close() error {
	t.mu.Lock()
	was := t.closing
	t.closing = true
	holds := slices.Collect(maps.Keys(t.holds))
	t.mu.Unlock()
	if was {
		return nil
	}
	var released sync.WaitGroup
	for _, h := range holds {
		released.Go(func() { _ = h.finish(ErrClosed) }) // or it runs out
	}
	released.Wait()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.hub.close()
	timer := time.AfterFunc(callBound, t.background.Cut)
	t.background.Wait()
	timer.Stop()
	t.seen.unwatch()
	return nil
}
