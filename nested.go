package mongolock

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/internal/tether"
)

// awaitNested is await for a caller that may hold the key already, or others: its context says so,
// if a lease of this client made it, as for the function of Do. A caller that holds the key is not
// made to wait for itself: it may only share the key once more.
func (c *Client) awaitNested(ctx context.Context, key string, t *terms) (*Lease, error) {
	err := c.nested(ctx, key, t)
	if err == nil {
		return c.await(ctx, key, t)
	}
	if !t.shares() {
		return nil, err
	}
	lease, refusal := c.try(ctx, key, t)
	if errors.Is(refusal, ErrHeld) {
		refusal = err
	}
	return lease, refusal
}

// nested returns an error if the caller holds the key, and otherwise notes that it is to be waited
// for under the lease which was acquired first: what is under that is in order if all take it.
func (c *Client) nested(ctx context.Context, key string, t *terms) error {
	var first *Lease
	for owner := range tether.Owners(ctx) {
		l, ok := owner.(*Lease)
		if !ok || l.holding.client != c || l.Err() != nil {
			continue
		}
		if l.Key() == key {
			return fmt.Errorf("mongolock: acquire %q: the caller holds it already: %w", key, &HeldError{Status: l.holding.status(), Here: true})
		}
		first = l
	}
	if first == nil || c.noOrder || t.shares() && first.terms.shares() {
		return nil
	}
	if conflict := c.order.Wait(first.Key(), key); conflict != nil {
		c.disorders.Add(1)
		c.logger.Warn("mongolock: keys are taken in different orders: two callers may wait for each other",
			"here", conflict.Here, "but", conflict.Other, "do", "take them in one order everywhere, or together with AcquireAll")
	}
	return nil
}

// holdsIt reports whether this client has the key alone, by a lease that has not ended.
func (q *queue) holdsIt() bool { return q.holder != nil && q.holder.why() == nil }
