package pathlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

const pkg = "pathlock"

// WithObserver sets an observer, for metrics and traces. It sees calls of Lock and LockWait
// (OpAcquire, and OpWait for the part that waits), of Refresh (OpRenew) and of Release
// (OpRelease). Their key is the tree's name and the path; tokens are never shown. There is no
// OpHold, because any process with a lock's token may use the lock.
func WithObserver(o mongolock.Observer) Option {
	return option(func(t *Tree) error { t.seen.observer = o; return notNil("WithObserver", o == nil) })
}

// seen holds what observers see of a tree.
type seen struct {
	observer mongolock.Observer
	unwatch  func()
	cleanUps atomic.Int64

	mu      sync.Mutex // protects waiters
	waiters map[*waiter]bool
}

func (s *seen) start(t *Tree) {
	s.waiters, s.unwatch = make(map[*waiter]bool), func() {}
	if o, ok := s.observer.(mongolock.StatsObserver); ok {
		s.unwatch = o.Watch(t.Stats)
	}
}

// Stats returns the numbers of this process's part in the tree: its calls that wait, its
// clean-ups. Held is zero, because a lock belongs to no process.
func (t *Tree) Stats() mongolock.Stats {
	s := mongolock.Stats{Package: pkg, CleanUps: int(t.seen.cleanUps.Load()), Feed: t.hub.follower.State()}
	t.seen.mu.Lock()
	defer t.seen.mu.Unlock()
	s.Waiters = len(t.seen.waiters)
	for w := range t.seen.waiters {
		s.OldestWait = max(s.OldestWait, time.Since(w.since))
	}
	return s
}

// observe tells the observer that an operation begins.
func (t *Tree) observe(ctx context.Context, op mongolock.Op, key string, mode Mode) (context.Context, func(error)) {
	if t.seen.observer == nil {
		return ctx, func(error) {}
	}
	ctx, end := t.seen.observer.Begin(ctx, mongolock.Operation{Op: op, Package: pkg, Key: key, Mode: store.Mode(mode)})
	return ctx, func(err error) {
		out := mongolock.Outcome{Err: err, Count: 1}
		if op == mongolock.OpRenew && err != nil {
			out.Count = 0
		}
		end(out)
	}
}

// key returns what observers see of a path.
func (t *Tree) key(path string) string { return t.name + ":" + path }

// lost returns the error of a refresh, as observers see it.
func lost(err error) error {
	if errors.Is(err, ErrUnknownToken) {
		return fmt.Errorf("%w: %w", mongolock.ErrLost, err)
	}
	return err
}

// waits makes a waiter, and counts it until it has ended.
func (t *Tree) waits() *waiter {
	w := newWaiter()
	t.seen.mu.Lock()
	defer t.seen.mu.Unlock()
	t.seen.waiters[w] = true
	return w
}
