package pathlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/leasectx"
	"github.com/mongolock/mongolock/internal/monotonic"
)

const (
	holdFor      = 30 * time.Second // how long a Hold lasts after its last refresh, if its Request does not say
	giveBackFor  = 3 * time.Second  // bounds one attempt of a Hold to release its lock
	mostMargin   = time.Second      // of the default margin
	refreshLeast = 50 * time.Millisecond
	resumedLead  = 15 * time.Second // how long before its end a lock that was resumed is refreshed at most
)

// A Hold is a lock that this process refreshes in the background until Release, Detach or Close of its
// tree, as a lease of package mongolock. Err, Done and Context tell when it is over. It is trusted for
// the time that its last refresh granted, counted from before that was sent, less a margin: so it
// ends before the storage can grant its path again. It is safe for concurrent use.
type Hold struct {
	// Lock is the lock as it was granted, with its path and token. It does not change.
	Lock Lock

	tree     *Tree
	margin   time.Duration
	lead     time.Duration
	contexts *leasectx.Tether
	done     chan struct{}      // closed when it is over
	stop     context.CancelFunc // ends the refreshing
	work     sync.WaitGroup     // the goroutine that refreshes

	mu       sync.Mutex // protects what follows; never held across a call
	deadline monotonic.Moment
	over     error // why it has ended
}

// Do takes a lock, waits while other locks conflict, runs fn with a context that ends with the lock,
// and releases it. The lock is refreshed for as long as fn runs.
//
// Do returns the error of Hold, or that of fn. If the lock was lost while fn ran, the reason is joined
// to it (matching mongolock.ErrLost). A release that fails is only logged. If fn panics, the lock is
// released too.
func (t *Tree) Do(ctx context.Context, r Request, fn func(ctx context.Context, h *Hold) error) error {
	if fn == nil {
		return errors.New("pathlock: Do: fn is nil")
	}
	h, err := t.Hold(ctx, r)
	if err != nil {
		return err
	}
	return h.run(ctx, fn)
}

// TryDo is Do without waiting: if other locks conflict it returns false and no error.
func (t *Tree) TryDo(ctx context.Context, r Request, fn func(ctx context.Context, h *Hold) error) (ran bool, err error) {
	if fn == nil {
		return false, errors.New("pathlock: TryDo: fn is nil")
	}
	h, err := t.TryHold(ctx, r)
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, h.run(ctx, fn)
}

// run calls fn under the lock, and gives the lock back whatever fn does.
func (h *Hold) run(ctx context.Context, fn func(context.Context, *Hold) error) (err error) {
	defer func() {
		ended := h.Err() // asked before Release ends it
		if failed := h.Release(); failed != nil && ended == nil {
			h.tree.logger.Warn("pathlock: a path is not given back, and stays taken until its lock runs out",
				"tree", h.tree.name, "path", h.Lock.Path, "timeout", h.Lock.Timeout, "error", failed)
		}
		if ended != nil && !errors.Is(ended, mongolock.ErrReleased) && !errors.Is(ended, mongolock.ErrDetached) {
			err = errors.Join(err, ended)
		}
	}()
	return fn(h.Context(ctx), h)
}

// Hold takes a lock and refreshes it in the background. It waits while other locks conflict, as
// LockWait does. A request without Timeouts asks for 30 s: if the process dies, the path is free after
// that time. A timeout that is Infinite is refused, because then it would never be.
func (t *Tree) Hold(ctx context.Context, r Request) (*Hold, error) { return t.hold(ctx, r, true) }

// TryHold is Hold without waiting: if other locks conflict, it returns a *ConflictError that lists
// them.
func (t *Tree) TryHold(ctx context.Context, r Request) (*Hold, error) { return t.hold(ctx, r, false) }

func (t *Tree) hold(ctx context.Context, r Request, wait bool) (*Hold, error) {
	if len(r.Timeouts) == 0 {
		r.Timeouts = []time.Duration{holdFor}
	}
	r, timeout, err := t.prepare(r)
	switch {
	case err != nil:
		return nil, err
	case timeout == Infinite:
		return nil, errors.New("pathlock: Hold: the timeout is Infinite: the path would stay taken after the death of this process")
	case t.margin > timeout/2:
		return nil, fmt.Errorf("pathlock: Hold: WithMargin(%v): must be at most half the timeout of %v", t.margin, timeout)
	}
	l, sent, err := t.take(ctx, r, timeout, wait)
	if err != nil {
		return nil, err
	}
	return t.holding(l, sent, t.marginOf(timeout), timeout*2/3)
}

// Resume goes on with a lock that exists, such as that of a Hold that was detached, in this process or
// in another one. Its Release ends the lock. It returns ErrUnknownToken if the lock is gone. It
// refreshes the lock only shortly before its end, so a timeout that a client of yours has asked for
// does not begin again because its lock is used.
func (t *Tree) Resume(ctx context.Context, l Lock) (*Hold, error) {
	sent := t.clock.Now()
	on, err := t.Affecting(ctx, l.Path, Zero)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(on.Same, func(o Lock) bool { return o.Token == l.Token })
	if i < 0 {
		return nil, ErrUnknownToken
	}
	l = on.Same[i]
	if l.Left != Infinite && l.Left < min(time.Second, l.Timeout/2) {
		sent = t.clock.Now()
		if l, err = t.Refresh(ctx, l.Token); err != nil {
			return nil, err
		}
	}
	margin := t.marginOf(l.Timeout)
	if l.Left != Infinite {
		margin = min(margin, l.Left/2)
	}
	return t.holding(l, sent, margin, min(l.Timeout*2/3, resumedLead))
}

// holding makes the Hold of a lock that was granted or read by a call that began at sent. It is
// refreshed by lead before its end.
func (t *Tree) holding(l Lock, sent monotonic.Moment, margin, lead time.Duration) (*Hold, error) {
	refreshing, stop := context.WithCancel(context.Background())
	h := &Hold{Lock: l, tree: t, margin: margin, lead: lead, done: make(chan struct{}), stop: stop, deadline: monotonic.Never}
	h.contexts = leasectx.New(h)
	if l.Left != Infinite {
		// No longer than its timeout, from which a refresh counts: the end may be further away if another
		// process was about to shorten it.
		h.deadline = sent.Add(min(l.Left, l.Timeout) - h.margin)
	}
	if !t.enlist(h) {
		h.end(ErrClosed)
	}
	if err := h.Err(); err != nil { // the answer came too late
		stop()
		return nil, errors.Join(err, h.giveBack())
	}
	if l.Left != Infinite {
		h.work.Go(func() { h.keep(refreshing) })
	}
	return h, nil
}

func (t *Tree) marginOf(timeout time.Duration) time.Duration {
	if t.margin >= 0 {
		return min(t.margin, timeout/2)
	}
	return min(mostMargin, timeout/10)
}

// enlist records a Hold for Close, unless that has begun.
func (t *Tree) enlist(h *Hold) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return false
	}
	t.holds[h] = true
	return true
}

// due returns when the lock is to be refreshed.
func (h *Hold) due() monotonic.Moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline.Add(h.margin - h.lead)
}

// keep refreshes when a third of the timeout is over, until it is stopped or the hold is over. It
// wakes at least once a second, because timers do not count while a machine sleeps.
func (h *Hold) keep(ctx context.Context) {
	timeout, clock := h.Lock.Timeout, &h.tree.clock
	for next := h.due(); ; {
		if !backoff.Sleep(ctx, max(time.Millisecond, min(clock.Until(next), h.Remaining(), time.Second))) || h.Err() != nil {
			return
		}
		if clock.Now() < next {
			continue
		}
		within, cancel := context.WithTimeout(ctx, max(timeout/10, refreshLeast))
		err := h.Renew(within)
		cancel()
		next = h.due()
		if err != nil {
			next = clock.Now().Add(min(timeout/20, 5*time.Second))
		}
	}
}

// Renew refreshes the lock now, which is done in the background too. After an error the hold goes on
// until its deadline, unless Err says otherwise.
func (h *Hold) Renew(ctx context.Context) error {
	if err := h.Err(); err != nil {
		return err
	}
	sent := h.tree.clock.Now()
	// By the lock's own timeout, whatever this process's limits are: a shorter one would move its end to
	// before the deadline. If another process has given it a longer one, that stays.
	l, err := h.tree.refresh(ctx, h.Lock.Token, h.Lock.Timeout, true)
	switch {
	case errors.Is(err, ErrUnknownToken):
		h.lose("the path is no longer held by it")
		return h.Err()
	case err != nil:
		return err
	case l.Left != Infinite:
		h.mu.Lock()
		h.deadline = max(h.deadline, sent.Add(l.Left-h.margin))
		h.mu.Unlock()
	}
	return h.Err()
}

// lose ends a hold that its holder did not end.
func (h *Hold) lose(why string) {
	if h.end(fmt.Errorf("%w: %s", mongolock.ErrLost, why)) {
		h.tree.logger.Warn("pathlock: a hold is lost", "tree", h.tree.name, "path", h.Lock.Path, "cause", why)
	}
}

// end ends the hold, unless it has ended: nothing that frees the path is sent before its contexts are
// cancelled.
func (h *Hold) end(why error) (ended bool) {
	h.mu.Lock()
	if ended = h.over == nil; ended {
		h.over = why
		close(h.done)
	}
	h.mu.Unlock()
	if ended {
		h.tree.forget(h)
		h.contexts.End(why)
	}
	return ended
}

func (t *Tree) forget(h *Hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.holds, h)
}

// Err returns nil while the path is held, and afterwards why it is not: the error matches
// mongolock.ErrLost, ErrReleased, ErrDetached or ErrClosed. It reads the clock itself.
func (h *Hold) Err() error {
	h.mu.Lock()
	over, deadline := h.over, h.deadline
	h.mu.Unlock()
	if over != nil || h.tree.clock.Now() < deadline {
		return over
	}
	h.lose("not refreshed in time")
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// Done returns a channel that is closed when the hold is over.
func (h *Hold) Done() <-chan struct{} { return h.done }

// Context returns a context that ends with parent or with the hold, whichever is first.
// context.Cause tells why.
func (h *Hold) Context(parent context.Context) context.Context { return h.contexts.Context(parent) }

// Remaining returns how long the path is held if no refresh succeeds any more: 0 if it is over, and
// Infinite for a lock without end.
func (h *Hold) Remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over != nil:
		return 0
	case h.deadline == monotonic.Never:
		return Infinite
	}
	return max(0, h.tree.clock.Until(h.deadline))
}

// Release ends the hold and releases the lock. If that fails, the lock runs out after its timeout. A
// hold that was lost returns no error: its path may be another's by now.
func (h *Hold) Release() error { return h.finish(mongolock.ErrReleased) }

// Detach ends the hold and leaves the lock, which lasts for its timeout from the last refresh on: with
// Resume, any process that has the token goes on with it.
func (h *Hold) Detach() error {
	if !h.quit(mongolock.ErrDetached) {
		return h.Err()
	}
	return nil
}

// finish ends the hold for a reason, and releases the lock.
func (h *Hold) finish(why error) error {
	if !h.quit(why) {
		return nil
	}
	return h.giveBack()
}

// quit ends the hold for a reason, unless it has ended, and waits for the end of its refreshing.
func (h *Hold) quit(why error) (ended bool) {
	_ = h.Err() // it may be lost by now
	ended = h.end(why)
	h.stop()
	h.work.Wait()
	return ended
}

// giveBack releases the lock. If a reply is lost it asks again.
func (h *Hold) giveBack() (err error) {
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), giveBackFor)
		err = h.tree.Release(ctx, h.Lock.Token)
		cancel()
		if err == nil || errors.Is(err, ErrUnknownToken) {
			return nil
		}
	}
	return err
}
