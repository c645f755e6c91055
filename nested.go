package mongolock

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/internal/tether"
)

// awaitNested is await for a caller that may hold the key already: its context says so, if a lease of
// this client made it, as for the function of Do. Such a caller is not made to wait for itself: it may
// only share the key once more.
func (c *Client) awaitNested(ctx context.Context, key string, t *terms) (*Lease, error) {
	err := c.nested(ctx, key)
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

// nested returns an error if the caller holds the key.
func (c *Client) nested(ctx context.Context, key string) error {
	for owner := range tether.Owners(ctx) {
		if l, ok := owner.(*Lease); ok && l.holding.client == c && l.Key() == key && l.Err() == nil {
			return fmt.Errorf("mongolock: acquire %q: the caller holds it already: %w", key, &HeldError{Status: l.holding.status(), Here: true})
		}
	}
	return nil
}
