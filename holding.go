package mongolock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/keeper"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/internal/tether"
	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// A holding is what the store has for this client: one acquisition, from its grant until the
// store has nothing of it. A caller has it by the Lease in it. With Linger a holding goes on
// after its Lease, without one, and then with another.
//
//	granted ──▶ in use ── Release ──▶ idle ── asked for here ──▶ in use ── …
//	              │                    │
//	              └── end              └── asked for elsewhere, d is over, no feed, Close ──▶ end
//
// The Lease that was in it before has ended and is settled: it can neither release nor renew
// what the next one has. The keeper renews a holding in use and an idle one alike.
type holding struct {
	client  *Client
	ref     store.Ref
	terms   *terms           // on which it was claimed
	since   time.Time        // by the store's clock, for display
	lingers string           // where others ask for it once it is idle, as its claim said; for display
	granted monotonic.Moment // when this process learned of the grant
	heard   wake.Heard       // when the claim was sent

	keeper.Slot

	unseen atomic.Bool // no caller has received the lease: MinHold has nothing to protect

	// Protected by the mu of the queues.
	queue      *queue      // does not change while the holding is in it
	listens    bool        // it counts among those that need the feed
	leaving    bool        // it is idle no more, but being given back
	keepTimer  *time.Timer // ends the keeping of an idle holding
	prev, next *holding    // in the client's list

	// mu protects what follows, and what says so in the Lease. Those methods that only stand on these
	// are called with it locked: watchDeadline, trusted, ends, over,
	// whyOver, watched, passes, timeToStop, result and answered.
	mu       sync.Mutex
	lease    *Lease // nil: the holding is idle, or was never granted
	err      error  // why it ended; nil: it has not
	term     term.Term
	token    int64           // of the last Lease
	spare    int             // how many tokens above that are free for the next ones
	values   context.Context // of the call that asked for it: for its values, not for its end
	timer    *time.Timer     // of the deadline
	line     []store.Place   // who waited when it was granted
	wanted   bool            // another process waits for the key, or may
	awaited  bool            // it does: see tellWanted
	renewing chan struct{}   // closed when the renewal under way is over; nil: none is
	release  release
}

// newClaim makes a claim of a key for w, and the holding that it becomes if it is granted.
func (c *Client) newClaim(w *waiter, key string) (store.Claim, *holding) {
	t := w.terms
	claim := store.Claim{
		Ref:   store.Ref{Key: key, ID: c.newID(), Mode: t.mode},
		Limit: t.limit, Weight: t.weight, TTL: t.ttl, Owner: c.owner, Note: t.note,
	}
	switch {
	case t.linger > 0:
		claim.Lingers = c.watch.Address()
	case t.yields:
		claim.Yields = c.watch.Address()
	}
	h := &holding{client: c, ref: claim.Ref, terms: t, lingers: claim.Lingers, values: w.ctx, Slot: keeper.Slot{TTL: t.ttl}}
	if t.linger > 0 || t.yields {
		h.heard = c.watch.HeardBy(key)
	}
	return claim, h
}

// grant puts a lease into the holding, by the answer to the claim that was sent at sent. The
// answer came now. It returns when the holding is renewed first.
func (h *holding) grant(sent, now monotonic.Moment, g store.Grant) (due monotonic.Moment) {
	t := h.terms
	h.term, due = term.Granted(t.ttl, h.client.marginFor(t.ttl), sent, now, g.Left)
	h.token, h.since, h.line, h.spare = g.Token, g.Since, g.Line, g.Spare
	h.wanted, h.awaited = len(g.Line) > 0, len(g.Line) > 0
	h.granted = now
	h.lease = newLease(h, t, g.Token, sent, now)
	return due
}

// start begins the life of the lease in a holding that was granted. If the lease has run out
// already, or the client is closed, it is given back. That needs no margin, because no caller
// has received the lease.
func (h *holding) start(due monotonic.Moment) (*Lease, error) {
	c, l := h.client, h.lease
	left := h.ends().Sub(h.granted)
	if left > 0 && c.observer != nil {
		h.values, l.endHold = c.observe(h.values, OpHold, h.ref.Key, h.terms)
	}
	closed := c.queues.enter(h)
	switch {
	case left <= 0:
		h.giveBackUnseen(ErrReleased)
		return nil, &unwanted{errLate}
	case closed:
		h.giveBackUnseen(ErrClosed)
		return nil, &unwanted{ErrClosed}
	}
	if h.terms.noRenewal || !l.limits.None() || h.term.Over(due) {
		h.mu.Lock()
		h.watchDeadline(left)
		h.mu.Unlock()
	} // otherwise the first renewal does, or whoever waits for the end
	if !h.terms.noRenewal {
		c.keeper.Add(h, due)
	}
	return l, nil
}

// watched makes sure that the holding ends at its deadline, by itself: it is renewed, or somebody waits
// for its end. Most holdings end before.
func (h *holding) watched() {
	if h.timer == nil && h.err == nil {
		h.watchDeadline(h.client.clock.Until(h.ends()))
	}
}

// watchDeadline sets the timer that ends the lease.
func (h *holding) watchDeadline(left time.Duration) {
	if h.timer == nil {
		h.timer = time.AfterFunc(left, h.expire)
	} else {
		h.timer.Reset(left)
	}
}

// trusted returns until when the store certainly has the holding, with regard to MaxHold.
func (h *holding) trusted() monotonic.Moment {
	if h.lease == nil {
		return h.term.Trusted()
	}
	return h.lease.limits.Trusted(h.term.Trusted())
}

// ends returns when the holding ends, unless it is renewed or its work reports progress.
func (h *holding) ends() monotonic.Moment {
	if h.lease == nil {
		return h.term.Trusted()
	}
	return h.lease.limits.Ends(h.term.Trusted())
}

// over reports whether that time has passed.
func (h *holding) over(now monotonic.Moment) bool {
	return now >= h.ends()
}

// whyOver returns the cause with which a holding ends that is over.
func (h *holding) whyOver() error {
	if h.lease != nil {
		switch h.lease.limits.Why(h.term.Trusted()) {
		case term.Stall:
			return ErrStalled
		case term.MaxHold:
			return ErrMaxHold
		case term.Trust:
		}
	}
	return errNotRenewed
}

// expire runs when the deadline's timer fires. A renewal moves the deadline but not the timer,
// so expire checks the deadline and sets the timer again.
func (h *holding) expire() {
	now := h.client.clock.Now()
	h.mu.Lock()
	if h.err != nil {
		h.mu.Unlock()
		return
	}
	if !h.over(now) {
		if h.timer != nil { // otherwise the first renewal sets it
			h.watchDeadline(h.ends().Sub(now))
		}
		h.mu.Unlock()
		return
	}
	cause := h.whyOver()
	h.mu.Unlock()
	h.end(cause)
}

// waiting returns who was in line when it was granted.
func (h *holding) waiting() []store.Place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.line
}

// current returns the lease that is in the holding, or nil.
func (h *holding) current() *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// why returns why the holding has ended, or nil.
func (h *holding) why() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// end ends the holding, and the lease that is in it: with of, only if that is of, nil if it is idle.
// The first cause stays.
func (h *holding) end(cause error, of ...*Lease) bool {
	tell := h.finish(cause, of...)
	if tell != nil {
		tell()
	}
	return tell != nil
}

// finish is end without telling the observer and the logger: the function that it returns tells
// them. The function is nil if end would return false.
func (h *holding) finish(cause error, of ...*Lease) (tell func()) {
	h.mu.Lock()
	l := h.lease
	if h.err != nil || len(of) > 0 && l != of[0] {
		h.mu.Unlock()
		return nil
	}
	h.err = cause
	lost := isLoss(cause)
	if lost {
		h.release.loss = &loss{notBefore: h.client.clock.Now().Add(h.timeToStop())} // from now on Close waits for it
	}
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	var contexts *tether.Tether
	if l != nil {
		contexts = l.tether
		if l.done != nil {
			close(l.done)
		}
	}
	h.mu.Unlock()
	contexts.End(cause)
	h.client.keeper.Remove(h)
	return func() {
		if l != nil && l.endHold != nil {
			h.client.tellEnd(l, cause)
		}
		if lost && l != nil {
			h.client.logger.Warn("mongolock: lease lost", "key", h.ref.Key, "token", l.token, "cause", cause)
		}
		if lost {
			h.afterLoss(cause)
		}
	}
}
