package mongolock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// Linger keeps the key for up to d after Release, in case this process asks for it again: then
// Acquire and TryAcquire cost no trip to the database. Each lease still gets a greater token.
//
// For a waiter of another process the key is freed at once. A TryAcquire there is refused: the
// holder is shown as one that Lingers, and FreeIdle asks it to free the key. If a process dies
// while it keeps a key, others wait for its TTL, as for any holder that dies.
//
// The key is kept only while this client hears of waiters, by the store's feed; without a feed
// Release frees it. An acquisition saves the trip only if it asks on the same terms: with
// another TTL or Note, or with MinHold, it costs one. Linger cannot be combined with Shared,
// OneOf, MinHold or NoRenewal.
func Linger(d time.Duration) AcquireOption {
	return acquireOption(func(t *terms) error {
		if d > maxTTL {
			return fmt.Errorf("mongolock: Linger(%v): must be at most a year (%v)", d, maxTTL)
		}
		t.linger = d
		return positive("Linger", d)
	})
}

// FreeIdle makes a refused TryAcquire ask the holder to give up the key if it is idle (see
// Linger): the key is freed at once, for a later call. A key in use is freed by its next
// Release. Acquire always asks.
func FreeIdle() AcquireOption {
	return acquireOption(func(t *terms) error { t.freeIdle = true; return nil })
}

// checkLinger refuses the options that cannot be combined with Linger.
func (t *terms) checkLinger() error {
	why := ""
	switch {
	case t.linger == 0:
	case t.shares():
		why = "Shared or OneOf: only a key that one process has alone can be kept"
	case t.minHold > 0:
		why = "MinHold: that keeps the key from every process, this one too"
	case t.noRenewal:
		why = "NoRenewal: a key that is kept has to be renewed"
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("mongolock: Linger(%v) with %s", t.linger, why)
}

// linger keeps the holding of a lease that has just been released, if it can be kept.
func (l *Lease) linger() bool {
	h := l.holding
	if l.terms.linger == 0 || !h.client.queues.keep(h, l.terms.linger) {
		return false
	}
	h.client.keeper.Again(h) // the renewals go on that ended with the lease
	return true
}

// keep makes a holding idle whose lease was released, for up to d, if it can be kept.
func (qs *queues) keep(h *holding, d time.Duration) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if h.queue.holder != h || !h.listens || qs.drained.Load() || !qs.watch.HeardAllSince(h.heard) {
		return false
	}
	now := qs.clock.Now()
	h.mu.Lock()
	kept := h.err == ErrReleased && h.passes(now) //nolint:errorlint // the very cause
	if kept {
		h.lease, h.err = nil, nil
	}
	h.mu.Unlock()
	if !kept {
		return false
	}
	h.keepTimer = time.AfterFunc(d, func() { qs.freeIdle(h) })
	if head := h.queue.head; head != nil {
		head.poke()
	}
	return true
}

// passes reports whether the holding may go from one lease to the next. It may not while the
// two could not be told apart in time: a renewal is under way, or has failed; a release was
// begun, or is about to be; a process waits; or the store may have the holding no more.
func (h *holding) passes(now monotonic.Moment) bool {
	trusted := now < h.term.Trusted() && !h.term.Failing()
	return trusted && h.release.state == kept && !h.release.decided && h.renewing == nil && !h.wanted
}

// regrant puts a lease for w into an idle holding, without a trip. It returns nil if w's terms
// differ, if the tokens are used up, or if the holding cannot be passed on.
func (h *holding) regrant(w *waiter, now monotonic.Moment) *Lease {
	t := w.terms
	if t.shares() || t.ttl != h.terms.ttl || t.note != h.terms.note || t.noRenewal || t.minHold != 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease != nil || h.err != nil || h.spare == 0 || !h.passes(now) {
		return nil
	}
	h.keepTimer.Stop()
	h.token, h.spare = h.token+1, h.spare-1
	h.values = w.ctx
	h.lease = newLease(h, t, h.token, now, now)
	if !h.lease.limits.None() {
		h.watchDeadline(h.ends().Sub(now))
	}
	return h.lease
}

// startLocal begins the life of a lease that regrant made. If it has ended already, it is not
// given to the caller.
func (l *Lease) startLocal() (*Lease, error) {
	h, c := l.holding, l.holding.client
	values, end := c.observe(h.values, OpHold, h.ref.Key, l.terms)
	h.mu.Lock()
	ended := l.ended()
	if ended == nil {
		h.values, l.endHold = values, end
	}
	h.mu.Unlock()
	if ended == nil && c.queues.drained.Load() {
		h.giveBackUnseen(ErrClosed)
	}
	err := l.Err()
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, ErrClosed):
		err = ErrClosed
	default:
		err = errLate
	}
	if ended != nil {
		end(Outcome{Err: err, Token: l.token, Count: 1})
	}
	return nil, &unwanted{err}
}

// takeIdle gives w the key that this client keeps: at once, or otherwise by a handoff in the
// store, which gone tells. The lease has yet to be started, by background work.
func (qs *queues) takeIdle(h *holding, w *waiter) (l *Lease, gone <-chan struct{}) {
	if h.leaving || h.current() != nil {
		return nil, nil
	}
	if l = h.regrant(w, qs.clock.Now()); l != nil {
		return l, nil
	}
	return nil, qs.dismiss(h)
}

// tryIdle is takeIdle for a TryAcquire. If w cannot have the idle holding, the key is freed
// first, as long as the caller waits for that.
func (c *Client) tryIdle(w *waiter) (l *Lease, err error) {
	qs := &c.queues
	c.background.Do(func() {
		var gone <-chan struct{}
		qs.mu.Lock()
		if q := qs.byKey.All[w.key]; q != nil && q.head == nil && q.holder != nil {
			l, gone = qs.takeIdle(q.holder, w)
		}
		qs.mu.Unlock()
		switch {
		case l != nil:
			l, err = l.startLocal()
		case gone != nil:
			select {
			case <-gone:
			case <-w.ctx.Done():
			case <-qs.draining:
			}
		}
	})
	return l, err
}

// freeIdle frees the key of a holding, if it is idle.
func (qs *queues) freeIdle(h *holding) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if !h.leaving && h.current() == nil {
		qs.dismiss(h)
	}
}

// heardWaiter records that a process waits, and reports whether the holding is idle.
func (h *holding) heardWaiter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted, h.awaited = true, true
	h.lease.tellWanted()
	return h.lease == nil
}

// dismiss frees the keys of idle holdings, or hands them over, in the background.
func (qs *queues) dismiss(idle ...*holding) <-chan struct{} {
	gone := make(chan struct{})
	for _, h := range idle {
		h.leaving = true
	}
	begun := qs.tasks.Go(func() {
		defer close(gone)
		giveBackAll(slices.DeleteFunc(idle, func(h *holding) bool { return !h.end(ErrReleased, nil) }))
	})
	if !begun {
		close(gone)
	}
	return gone
}

// dismissAll frees all keys that are kept, because this client would no longer hear of waiters,
// or shuts down.
func (qs *queues) dismissAll() {
	idle := slices.DeleteFunc(qs.held.list(), func(h *holding) bool { return h.leaving || h.current() != nil })
	if len(idle) > 0 {
		qs.dismiss(idle...)
	}
}
