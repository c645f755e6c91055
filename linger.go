package mongolock

import (
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
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

// FreeIdle makes a TryAcquire that is refused ask for a key that its holder only keeps with
// Linger: the key is freed at once, for a later call. A key in use is freed by its next
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

// While a key is kept, its holder in the store passes from one Lease to the next:
//
//	granted by the store ──▶ in use ── Release ──▶ idle ── asked for here ──▶ in use ── …
//	                                                 │
//	                                                 └── asked for elsewhere, d is over, no feed,
//	                                                     Close ──▶ released in the store
//
// Each of them has a Lease of its own, with its own token. The Lease before it has ended, and
// is settled: it can neither release nor renew what the next one has. No caller has an idle
// Lease. The engine renews it, and ends it like any other.

// lingering holds the fields of a lease that is passed on in this way.
type lingering struct {
	idle  bool   // no caller has it; constant
	after *Lease // the idle lease whose place it takes; nil for most; constant once it is started
	spare int    // how many tokens above its own are free for its successors; constant
	hears int    // which opening of the feed has told of all waiters since before the claim; constant
	asks  uint32 // how often others had asked for such keys by then; constant

	listens bool // it counts among the leases that need the feed; protected by Client.mu
	leaving bool // it is idle no more, but being given back; protected by Client.mu

	keepTimer *time.Timer // ends the keeping of an idle lease; protected by Client.mu until the lease is passed on or ends
}

// linger puts an idle lease in the place of l, which its holder has released, if the key can be
// kept.
func (l *Lease) linger() bool {
	if l.terms.linger == 0 {
		return false
	}
	c := l.client
	idle := &Lease{client: c, key: l.key, id: l.id, terms: l.terms, values: l.values, slot: slot{index: unscheduled}}
	idle.idle = true
	c.mu.Lock()
	opening, live := c.watch.feed.Hears()
	if l.queue.holder != l || !l.listens || c.drained.Load() || !live || opening != l.hears || !l.pass(idle, c.clock.Now()) {
		c.mu.Unlock()
		return false
	}
	c.succeed(idle, l)
	under, due := idle.under, idle.slot.due
	idle.keepTimer = time.AfterFunc(l.terms.linger, func() { c.giveUp(idle) })
	if idle.queue.head != nil {
		idle.queue.head.poke()
	}
	c.mu.Unlock()
	idle.goOn(under, due)
	return true
}

// succeed puts next in the place of l, which is settled. Call it with c.mu held.
func (c *Client) succeed(next, l *Lease) {
	c.enlist(next)
	c.delist(l)
	next.queue, next.listens = l.queue, l.listens
	next.queue.holder = next
	l.mu.Lock()
	defer l.mu.Unlock()
	next.wanted = l.wanted // the word may have been heard while next took the place
}

// goOn has the renewals of a lease go on after it took the place of another: by its session, or
// its own.
func (l *Lease) goOn(under *Lease, due monotonic.Moment) {
	if under != nil {
		l.stayUnder(under)
	} else {
		l.renewAt(due)
	}
}

// pass gives what l has in the store to next. It refuses while the two could not be told apart
// in time: a renewal is under way, or has failed; a release was begun; a process waits; or l
// may not be trusted any more. Afterwards l is settled. Call it with Client.mu held.
func (l *Lease) pass(next *Lease, now monotonic.Moment) bool {
	passed := l.passOn(next, now)
	if passed {
		next.slot.due = l.client.keeper.remove(l)
	}
	return passed
}

func (l *Lease) passOn(next *Lease, now monotonic.Moment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	trusted := now < l.storeTrusted() && !l.failing || knob.LocalGrantRenews
	ready := l.release.state == kept && l.renewing == nil && (!l.wanted || knob.LingerIgnoresWord)
	if !trusted || !ready || l.idle == (l.err != nil) {
		return false
	}
	l.err = ErrReleased
	l.release.settle(nil)
	for _, timer := range []*time.Timer{l.timer, l.keepTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
	next.margin, next.token, next.spare, next.hears = l.margin, l.token, l.spare, l.hears
	next.since, next.granted = l.since, l.granted
	next.deadline, next.until, next.took, next.renewed = l.deadline, l.until, l.took, l.renewed
	next.under, next.tied, next.comes, next.alone, next.streak = l.under, l.tied, l.comes, l.alone, l.streak
	return true
}

// regrant gives w the key that is kept idle, without a trip. It returns nil if w's terms
// differ, if the tokens are used up, or if the idle lease cannot be passed on. The lease has
// yet to be started, and counts as background work until then. Call it with c.mu held.
func (c *Client) regrant(w *waiter, idle *Lease) *Lease {
	t := w.terms
	if t.shares() || t.ttl != idle.terms.ttl || t.note != idle.terms.note || t.noRenewal || t.minHold != 0 || idle.spare == 0 {
		return nil
	}
	if !c.enterLocked() {
		return nil
	}
	now, l := c.clock.Now(), c.newLease(w, idle.id)
	if !idle.pass(l, now) {
		c.background.Done()
		return nil
	}
	l.after = idle
	if !knob.LocalTokenKept {
		l.token, l.spare = idle.token+1, idle.spare-1
	}
	l.since, l.granted = idle.since.Add(now.Sub(idle.granted)), now
	if knob.LocalGrantRenews {
		l.deadline = now.Add(t.ttl - l.margin)
	}
	l.limit(now, now)
	return l
}

// startLocal begins the life of a lease that regrant made.
func (c *Client) startLocal(l *Lease, w *waiter) error {
	defer c.background.Done()
	return l.start(w)
}

// takeIdle gives w the key that this client keeps: at once, or otherwise by a hand-over in the
// store. Call it with c.mu held.
func (c *Client) takeIdle(w *waiter, idle *Lease) (move, bool) {
	if !idle.idle || idle.leaving {
		return move{}, false
	}
	if l := c.regrant(w, idle); l != nil {
		w.asking = true
		return move{step: toStart, lease: l}, true
	}
	c.dismiss(idle)
	return move{}, false
}

// tryIdle is takeIdle for a TryAcquire. If w cannot have the idle lease, the key is freed
// first, as long as the caller waits for that.
func (c *Client) tryIdle(w *waiter) (*Lease, error) {
	c.mu.Lock()
	q := c.queues[w.key]
	if q == nil || q.head != nil || q.holder == nil || !q.holder.idle || q.holder.leaving {
		c.mu.Unlock()
		return nil, nil
	}
	l := c.regrant(w, q.holder)
	var gone <-chan struct{}
	if l == nil {
		gone = c.dismiss(q.holder)
	}
	c.mu.Unlock()
	if l != nil {
		if err := c.startLocal(l, w); err != nil {
			return nil, err
		}
		return l, nil
	}
	select {
	case <-gone:
	case <-w.ctx.Done():
	case <-c.draining:
	}
	return nil, nil
}

// dismiss frees the key of an idle lease, or hands it over, in the background. Call it with
// c.mu held.
func (c *Client) dismiss(idle ...*Lease) <-chan struct{} {
	gone := make(chan struct{})
	if !c.enterLocked() {
		close(gone)
		return gone
	}
	for _, l := range idle {
		l.leaving = true
	}
	go func() {
		defer c.background.Done()
		defer close(gone)
		giveBackAll(slices.DeleteFunc(idle, func(l *Lease) bool { return !l.end(ErrReleased) }))
	}()
	return gone
}

// dismissAll frees all keys that are kept, because this client would no longer hear of waiters,
// or shuts down. Call it with c.mu held.
func (c *Client) dismissAll() {
	var all []*Lease
	for l := c.leases; l != nil; l = l.next {
		if l.idle && !l.leaving {
			all = append(all, l)
		}
	}
	if len(all) > 0 {
		c.dismiss(all...)
	}
}

// giveUp frees the key of an idle lease, unless it is no longer idle.
func (c *Client) giveUp(idle *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !idle.leaving {
		c.dismiss(idle)
	}
}

// asked records that another process waits for a key that this client may keep. Call it with
// c.mu held.
func (c *Client) asked(key string) {
	c.asks.of(key).Add(1)
	if q := c.queues[key]; q != nil && q.holder != nil && q.holder.heardWord() && !q.holder.leaving {
		c.dismiss(q.holder)
	}
}

// heardWord records that a process waits, and reports whether the lease is idle.
func (l *Lease) heardWord() bool {
	if knob.LingerIgnoresWord {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
	return l.idle
}
