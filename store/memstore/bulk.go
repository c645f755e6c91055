package memstore

import (
	"context"

	"github.com/mongolock/mongolock/store"
)

// AcquireMany makes one claim after the other.
func (s *Store) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	answers := make([]store.Claimed, len(batch))
	for i, c := range batch {
		answers[i].Grant, answers[i].Err = s.Acquire(ctx, c)
	}
	return answers
}
