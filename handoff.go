package mongolock

import (
	"errors"

	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// successor returns the waiter of this client that the holding may be handed to, and the streak
// with that handoff, or nil if there is no such waiter.
func (qs *queues) successor(h *holding) (*waiter, line.Streak) {
	if h.terms.shares() {
		return nil, line.Streak{}
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := h.queue
	if q.holder != h || q.head == nil || q.head.asking || q.head.terms.shares() {
		return nil, line.Streak{}
	}
	now := qs.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	may := h.err == ErrReleased && !h.release.inDoubt && now < h.ends() && h.keep() == 0 //nolint:errorlint // the very cause
	var s line.Streak
	if len(h.line) > 0 && may {
		s, may = q.streak.On(now)
	}
	if !may {
		return nil, line.Streak{}
	}
	return q.head, s
}

// handOff puts w's claim in the place of this holding, in one step. done means that this holding
// is settled. Unless the handoff was handled, nothing was changed, and the holding is released
// as usual.
func (h *holding) handOff(w *waiter, s line.Streak, until monotonic.Moment) (done, handled bool, err error) {
	c := h.client
	values, end := c.observe(w.ctx, OpTransfer, w.key, w.terms)
	claim, next := c.newClaim(w, w.key)
	sent := c.clock.Now()
	ctx, cancel := c.background.Bound(values, min(until, sent.Add(claim.TTL)))
	grant, err := c.store.Transfer(ctx, h.ref, claim)
	cancel()
	lease, err := next.settleClaim(&h.ref, sent, grant, err)
	end(Outcome{Err: err, Token: grant.Token, Count: 1})
	switch {
	case err == nil:
		c.queues.deliver(w, lease, s) // before the rest of the work for this holding
		h.settle(nil)
		return true, true, nil
	case errors.As(err, new(*unwanted)):
		h.settle(nil)
		return true, true, nil
	case store.IsCertain(err):
		return false, false, nil
	}
	h.doubt()
	return false, true, failed("release", w.key, err)
}
