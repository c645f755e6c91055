package mongolock

import (
	"context"
	"fmt"

	"github.com/mongolock/mongolock/internal/tether"
)

// nested refuses a wait for a key that the caller itself holds, as its context shows: it would wait
// for itself. The context is one that a lease of this client made, as for the function of Do.
func (c *Client) nested(ctx context.Context, key string) error {
	for owner := range tether.Owners(ctx) {
		l, ok := owner.(*Lease)
		if !ok || l.holding.client != c || l.Key() != key || l.Err() != nil {
			continue
		}
		return fmt.Errorf("mongolock: acquire %q: the caller holds it already: %w", key, &HeldError{Status: l.holding.status(), Here: true})
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
