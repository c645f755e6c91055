package mongolock

import (
	"context"
	"fmt"

	"github.com/mongolock/mongolock/internal/tether"
)

// nested looks at what the caller of a wait holds already, as its context shows: it is one that a
// lease of this client made, as for the function of Do. A wait for the same key is refused, as the
// caller would wait for itself. Other keys are to be taken in one order everywhere.
func (c *Client) nested(ctx context.Context, key string) error {
	for owner := range tether.Owners(ctx) {
		l, ok := owner.(*Lease)
		if !ok || l.holding.client != c || l.Err() != nil {
			continue
		}
		if l.Key() == key {
			return fmt.Errorf("mongolock: acquire %q: the caller holds it already: %w", key, &HeldError{Status: l.holding.status(), Here: true})
		}
		if c.noOrder {
			continue
		}
		if conflict := c.order.Wait(l.Key(), key); conflict != nil {
			c.disorders.Add(1)
			c.logger.Warn("mongolock: keys are taken in different orders: two callers may wait for each other for ever",
				"here", conflict.Here, "but", conflict.Other, "do", "take them in one order everywhere, or together with AcquireAll")
		}
	}
	return nil
}

// holdsAlone reports whether this client holds a key, and nobody else does.
func (c *Client) holdsAlone(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues.All[key]
	return q != nil && q.holder != nil
}
