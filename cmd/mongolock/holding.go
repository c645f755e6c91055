package main

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

// takePath takes a path. It waits for the time patience: for ever if that is negative, not at all if
// it is 0.
func takePath(ctx context.Context, tree *pathlock.Tree, r pathlock.Request, patience time.Duration) (*pathlock.Hold, error) {
	if patience == 0 {
		return tree.TryHold(ctx, r)
	}
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	return tree.Hold(ctx, r)
}
