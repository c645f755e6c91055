package mongolock

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// await is Acquire: the caller stands in the queue until it has the key, or gives up.
func (c *Client) await(ctx context.Context, key string, t *terms) (lease *Lease, err error) {
	var endWait func(Outcome)
	defer func() {
		if endWait != nil {
			endWait(Outcome{Err: err, Count: 1})
		}
	}()
	var patience monotonic.Moment
	if t.maxWait > 0 {
		patience = c.clock.Now().Add(t.maxWait)
	}
	if err := c.settleFirst(ctx, key, patience, errPatience); err != nil {
		return nil, err
	}
	if !c.background.Begin() { // so that Close waits until the place in the line is given up
		return nil, &fault{op: "acquire", key: key, err: ErrClosed}
	}
	w, m := c.queues.join(ctx, key, t, patience)
	defer func() {
		if !c.queues.places.Add(w.gaveUp) {
			c.background.Done()
			return
		}
		go func() {
			defer c.background.Done()
			c.queues.places.Work()
		}()
	}()
	for ; ; m = c.queues.next(w) {
		switch m.step {
		case toTake:
			return m.lease, nil
		case toAsk:
			lease, err := c.askForKey(w, m)
			if lease != nil || err != nil {
				return c.queues.leave(w, lease, err)
			}
		case toRead:
			c.background.Go(func() { c.queues.read(key) })
		case toSleep:
			if endWait == nil {
				_, endWait = c.observe(ctx, OpWait, key, t)
			}
			if err := c.queues.wait(w, w.nudge, m.until); err != nil {
				return c.queues.leave(w, nil, err)
			}
		}
	}
}

// askForKey sends a claim for the head. If it returns neither a lease nor an error, the claim
// was refused, or failed while the head was waiting already, and the head goes on waiting.
func (c *Client) askForKey(w *waiter, m move) (*Lease, error) {
	lease, err := c.send(w, &m.claim, m.now)
	lease, tell, err := c.queues.answered(w, m, lease, err)
	c.watch.Announce(tell...)
	if lease != nil && c.queues.untold(w, m, lease.holding) {
		c.freed(w.key)
	}
	return lease, err
}

// refusal returns the error of a waiter that leaves without the key. The error says that the key
// is held only if w knows it.
func (w *waiter) refusal(held *HeldError, err error) error {
	if !errors.As(err, new(*abandoned)) {
		return failed("acquire", w.key, err)
	}
	patience := errors.Is(err, errPatience)
	switch {
	case errors.Is(err, ErrClosed), !w.refused:
		return &fault{op: "acquire", key: w.key, err: err}
	case patience && w.fault == nil:
		return fmt.Errorf("%w: %w", held, errPatience)
	case patience:
		return fmt.Errorf("%w: %w; last fault: %v", held, errPatience, w.fault) //nolint:errorlint // it may be the end of a command's context, and none of the caller's has ended
	case w.fault != nil:
		return fmt.Errorf("mongolock: acquire %q: %w: %w; last fault: %w", w.key, err, held, w.fault)
	}
	return fmt.Errorf("mongolock: acquire %q: %w: %w", w.key, err, held)
}
