package mongolock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Shutdown closes the client after giving holders time to finish. Calls that wait for a key end
// with ErrClosed, and the contexts of all leases are cancelled. Shutdown then waits until their
// holders have released them, or until ctx ends, and closes the client. It returns what Close
// returns, joined with the context's error if leases were left.
func (c *Client) Shutdown(ctx context.Context) error {
	c.watch.Announce(c.queues.drain()...)
	for _, h := range c.queues.unsettled() {
		h.lease.contexts().End(ErrClosed)
	}
	var err error
	select {
	case <-c.queues.noLeases():
	case <-ctx.Done():
		err = fmt.Errorf("mongolock: shutdown: leases left: %w", contextError(ctx))
	}
	return errors.Join(err, c.Close())
}

// Close ends every lease (ErrClosed), gives their holders one margin to stop, releases the
// leases that are left and waits for all background work. That takes at most the margin and 5
// s. The error names the leases and claims that are unsettled then; they run out in the
// database. No goroutine is left. Later calls return ErrClosed; closing twice is harmless. It
// releases 64 leases at a time: 10,000 take some 160 trips to the database.
//
// Close the client before its database connection.
func (c *Client) Close() error {
	if !c.closing.Swap(true) { // no sync.Once: a goroutine that waits for one is not durably blocked in a bubble of virtual time
		c.closeIs = c.shut()
		close(c.closeOK)
	}
	<-c.closeOK
	return c.closeIs
}

func (c *Client) shut() error {
	c.watch.Announce(c.queues.drain()...)
	all := c.queues.unsettled()
	var grace time.Duration
	for _, h := range all {
		h.end(ErrClosed)
		grace = max(grace, h.untilGiveBack())
	}
	c.watch.End() // nobody waits any more, and a store may take a moment to end its feed
	if grace > 0 {
		select {
		case <-c.queues.noLeases():
		case <-time.After(grace):
		}
	}
	giveUp := time.AfterFunc(releaseBound, c.background.Cut)
	defer giveUp.Stop()
	giveBackAll(all)
	c.keeper.Stop()
	c.watch.Close()
	c.background.Wait() // from here on no background work begins
	c.unwatch()
	return c.leftBehind(all)
}

// leftBehind returns the error of Close: the errors of the releases, and the leases and claims
// that are left to run out.
func (c *Client) leftBehind(all []*holding) error {
	var errs []error
	for _, h := range all {
		if settled, err := h.outcome(); settled && errors.Is(h.why(), ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, h := range c.queues.unsettled() {
		if settled, err := h.outcome(); !settled { // its own Release may be about to take it out
			errs = append(errs, fmt.Errorf("mongolock: close: %q is not released and runs out by itself: %w", h.ref.Key, err))
		}
	}
	for _, ref := range c.cleaner.Left() {
		errs = append(errs, fmt.Errorf("mongolock: close: a claim of %q runs out by itself: %w", ref.Key, ErrOutcomeUnknown))
	}
	return errors.Join(errs...)
}

// untilGiveBack returns how long Close must wait before it gives the lease back.
func (h *holding) untilGiveBack() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(h.err, ErrClosed):
		return h.term.Margin()
	case h.release.loss == nil:
		return 0
	}
	return h.client.clock.Until(h.release.loss.notBefore)
}

// outcome returns whether the holding is given back, and the error of that so far.
func (h *holding) outcome() (done bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.release.state != settled && h.err == ErrDetached { //nolint:errorlint // the very cause
		return false, ErrDetached
	}
	return h.release.state == settled, h.release.err
}
