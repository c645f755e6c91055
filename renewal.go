package mongolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/keeper"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// sendRenewals sends one renewal for all of batch. The calls that told makes come after the
// items have taken in the answers.
func (c *Client) sendRenewals(batch []keeper.Item, sent monotonic.Moment, limit time.Duration) (answers []store.Renewed, told func()) {
	key, values, t := "", context.Background(), (*terms)(nil)
	if len(batch) == 1 {
		h := batch[0].(*holding)
		key, values, t = h.ref.Key, h.values, h.terms
	}
	end := c.observeAside(values, OpRenew, key, t)
	ctx, cancel := c.background.Bound(values, sent.Add(limit))
	defer cancel()
	request := make([]store.Renewal, len(batch))
	for i, item := range batch {
		h := item.(*holding)
		request[i] = store.Renewal{Ref: h.ref, TTL: h.terms.ttl}
	}
	answers = c.store.Renew(ctx, request)
	return answers, func() { end(renewed(batch, answers)) }
}

// renewed is the outcome of a renewal.
func renewed(batch []keeper.Item, answers []store.Renewed) (out Outcome) {
	var errs []error
	for i, item := range batch {
		h := item.(*holding)
		err := answers[i].Err
		if ended := h.why(); ended != nil {
			err = ended
		}
		if err == nil {
			out.Count++
		} else {
			errs = append(errs, &fault{op: "renew", key: h.ref.Key, err: err})
		}
	}
	out.Err = errors.Join(errs...)
	return out
}

// Begin makes the caller the one to renew the holding. Otherwise it returns a channel that
// closes when the renewal under way is over, or nil if the holding has ended.
func (h *holding) Begin() (mine bool, other <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return false, nil
	case h.renewing != nil:
		return false, h.renewing
	}
	h.renewing = make(chan struct{})
	h.watched()
	return true, nil
}

// Wait is told that the renewal has to wait.
func (h *holding) Wait() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched()
}

// Limits are those of a renewal.
func (h *holding) Limits(now monotonic.Moment) (patience, pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term.Patience(now, h.trusted()), h.term.RetryPause(now, h.trusted())
}

// Answer takes in the answer to a renewal. An answer after the deadline does not move it: the
// holder was told that the lease is over, or is about to be.
func (h *holding) Answer(answer store.Renewed, sent, now monotonic.Moment) (next keeper.Next) {
	h.mu.Lock()
	close(h.renewing)
	h.renewing = nil
	if len(answer.Line) > 0 {
		h.line, h.awaited = answer.Line, true
		h.tellWanted()
	}
	held := h.err == nil && !h.over(now)
	first := false
	var due monotonic.Moment
	switch {
	case answer.Err != nil:
		first = h.term.Failed(now)
	case held:
		due = h.term.Renewed(sent, now, answer.Left)
	default:
		h.term.Late(now)
	}
	h.mu.Unlock()
	switch cause := verdict(answer.Err); {
	case cause != nil:
		next.Tell = h.finish(cause)
	case !held || h.terms.noRenewal:
	case answer.Err != nil:
		next.Again = true
		if first {
			next.Tell = func() {
				h.client.logger.Warn("mongolock: renewal failed, trying again", "lease", &h.lease, "error", answer.Err)
			}
		}
	default:
		next.Due = due
	}
	return next
}

// seldomRenewed reports whether a waiter reads the key now and then (readHeld), to learn whether the
// store still has the holding: an operator may have removed it by hand. One that is renewed more
// often than once a minute learns of that by itself.
func (h *holding) seldomRenewed() bool { return h.terms.noRenewal || h.terms.ttl/3 > time.Minute }

// checkIn renews the holding if a read does not show it. Only a renewal says for certain that
// it is gone, and so ends it. The queues are locked.
func (h *holding) checkIn(s *store.Status) {
	if !h.isAmong(s.Holders) && h.seldomRenewed() {
		h.client.background.Go(func() { h.client.keeper.Renew(h) })
	}
}

// isAmong reports whether h is one of the holders that the store shows.
func (h *holding) isAmong(holders []store.Holder) bool {
	return slices.ContainsFunc(holders, func(in store.Holder) bool { return in.ID == h.ref.ID })
}

// verdict returns why a lease ends whose renewal was answered with err, or nil if it goes on.
func verdict(err error) error {
	var broken *store.BrokenError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &broken):
		return fmt.Errorf("%w: %s", ErrBroken, broken.Reason)
	case errors.Is(err, store.ErrGone):
		return errGone
	case store.IsVerdict(err):
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}
