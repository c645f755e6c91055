package pathlock

import (
	"context"
	"sync/atomic"
	"time"
)

// A losing storage applies the next writes and loses their answers.
type losing struct {
	Storage
	next atomic.Int32
	err  error
}

func (s *losing) Update(ctx context.Context, tree string, change func(*Document, Clock) (Edit, error)) (time.Time, error) {
	at, err := s.Storage.Update(ctx, tree, change)
	if err == nil && s.next.Add(-1) >= 0 {
		return time.Time{}, s.err
	}
	return at, err
}
