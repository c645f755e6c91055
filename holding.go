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
	"github.com/mongolock/mongolock/store"
)

// A holding is one acquisition: what the store has for this client, from the claim until the store has
// nothing of it. Its caller has a Lease of it, which is nothing but the exported part of its methods.
type holding struct {
	lease   Lease
	client  *Client
	ref     store.Ref
	terms   *terms           // on which it was claimed
	since   time.Time        // by the store's clock, for display
	granted monotonic.Moment // when this process learned of the grant
	token   int64
	asked   uint32          // how often others had asked for the key when the claim was sent
	values  context.Context // of the call that asked for it: for its values, not for its end
	endHold func(Outcome)   // nil: it was never held

	keeper.Slot

	unseen atomic.Bool // no caller has received the lease: MinHold has nothing to protect

	// Protected by the mu of the queues.
	queue      *queue   // does not change while the holding is in it
	listens    bool     // it counts among those that need the feed
	prev, next *holding // in the client's list

	// mu protects what follows. Those methods that only stand on these are called with it locked:
	// watchDeadline, trusted, ends, over, whyOver, watched, tellWanted and answered.
	mu       sync.Mutex
	err      error // why it ended; nil: it has not
	term     term.Term
	limits   term.Limits
	done     chan struct{}  // made at the first call of Done
	wanted   chan struct{}  // made at the first call of Wanted
	tether   *tether.Tether // made at the first call of Context
	timer    *time.Timer    // of the deadline
	line     []store.Place  // who waited when it was granted
	awaited  bool           // another process waits for the key
	renewing chan struct{}  // closed when the renewal under way is over; nil: none is
	release  release
}

// newClaim makes a claim of a key for w, and the holding that it becomes if it is granted.
func (c *Client) newClaim(w *waiter, key string) (store.Claim, *holding) {
	t := w.terms
	claim := store.Claim{
		Ref:   store.Ref{Key: key, ID: c.newID(), Mode: t.mode},
		Limit: t.limit, Weight: t.weight, TTL: t.ttl, Owner: c.owner, Note: t.note,
	}
	h := &holding{client: c, ref: claim.Ref, terms: t, values: w.ctx, Slot: keeper.Slot{TTL: t.ttl}}
	h.lease.holding = h
	if t.yields {
		claim.Yields, h.asked = c.watch.Address(), c.watch.Asked(key)
	}
	return claim, h
}

// grant takes in that the claim was granted, which was sent at sent. The answer came now. It returns when
// the holding is renewed first.
func (h *holding) grant(sent, now monotonic.Moment, g store.Grant) (due monotonic.Moment) {
	t := h.terms
	h.term, due = term.Granted(t.ttl, h.client.marginFor(t.ttl), sent, now, g.Left)
	h.token, h.since, h.line, h.awaited, h.granted = g.Token, g.Since, g.Line, len(g.Line) > 0, now
	if t.maxHold > 0 {
		h.limits.MaxHold = sent.Add(t.maxHold)
	}
	if t.maxStall > 0 {
		h.limits.Stall = now.Add(t.maxStall)
	}
	return due
}

// start begins the life of a holding that was granted. If it has run out already, or the client is
// closed, it is given back. That needs no margin, because no caller has received the lease.
func (h *holding) start(due monotonic.Moment) (*Lease, error) {
	c := h.client
	left := h.ends().Sub(h.granted)
	if left > 0 && c.observer != nil {
		h.values, h.endHold = c.observe(h.values, OpHold, h.ref.Key, h.terms)
		left = c.clock.Until(h.ends()) // the observer may have taken its time
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
	if h.terms.noRenewal || !h.limits.None() || h.term.Over(due) {
		h.mu.Lock()
		h.watchDeadline(left)
		h.mu.Unlock()
	} // otherwise the first renewal does, or whoever waits for the end
	if !h.terms.noRenewal {
		c.keeper.Add(h, due)
	}
	return &h.lease, nil
}

// watched makes sure that the holding ends at its deadline, by itself: it is renewed, or somebody waits
// for its end. Most holdings end before.
func (h *holding) watched() {
	if h.timer == nil && h.err == nil {
		h.watchDeadline(h.client.clock.Until(h.ends()))
	}
}

// watchDeadline sets the timer that ends the holding.
func (h *holding) watchDeadline(left time.Duration) {
	if h.timer == nil {
		h.timer = time.AfterFunc(left, h.expire)
	} else {
		h.timer.Reset(left)
	}
}

// trusted returns until when the store certainly has the holding, with regard to MaxHold.
func (h *holding) trusted() monotonic.Moment { return h.limits.Trusted(h.term.Trusted()) }

// ends returns when the holding ends, unless it is renewed or its work reports progress.
func (h *holding) ends() monotonic.Moment { return h.limits.Ends(h.term.Trusted()) }

// over reports whether that time has passed.
func (h *holding) over(now monotonic.Moment) bool {
	return now >= h.ends()
}

// whyOver returns the cause with which a holding ends that is over.
func (h *holding) whyOver() error {
	switch h.ends() {
	case h.limits.Stall:
		return ErrStalled
	case h.limits.MaxHold:
		return ErrMaxHold
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

// why returns why the holding has ended, or nil.
func (h *holding) why() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// end ends the holding. The first cause stays; later calls change nothing. When end returns, Done is
// closed and the contexts are cancelled. It does not touch the store. What was lost is removed from the
// store no earlier than one margin from now.
func (h *holding) end(cause error) bool {
	tell := h.finish(cause)
	if tell != nil {
		tell()
	}
	return tell != nil
}

// finish is end without telling the observer and the logger: the function that it returns tells
// them. The function is nil if end would return false.
func (h *holding) finish(cause error) (tell func()) {
	h.mu.Lock()
	if h.err != nil {
		h.mu.Unlock()
		return nil
	}
	h.err = cause
	lost := isLoss(cause)
	if lost {
		h.release.loss = &loss{notBefore: h.client.clock.Now().Add(h.term.Margin())} // from now on Close waits for it
	}
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	contexts := h.tether
	if h.done != nil {
		close(h.done)
	}
	h.mu.Unlock()
	contexts.End(cause)
	h.client.keeper.Remove(h)
	return func() {
		if h.endHold != nil {
			h.client.tellEnd(h, cause)
		}
		if lost {
			h.client.logger.Warn("mongolock: lease lost", "key", h.ref.Key, "token", h.token, "cause", cause)
			h.afterLoss(cause)
		}
	}
}
