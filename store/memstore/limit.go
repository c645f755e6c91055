package memstore

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/store"
)

// SetLimit sets how many permits a key has.
func (s *Store) SetLimit(ctx context.Context, key string, n int) (store.Status, error) {
	if err := ended(ctx); err != nil {
		return store.Status{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, now := s.records[key], s.clock()
	if err := rec.foreignError(key); err != nil {
		return store.Status{Key: key, Now: now}, err
	}
	if s.limits == nil {
		s.limits = make(map[string]int)
	}
	if s.limits[key] = n; n == 0 {
		delete(s.limits, key)
	}
	if rec != nil {
		rec.set = n
	}
	return s.status(key, now), nil
}

// status returns a key as Look shows it.
func (s *Store) status(key string, now time.Time) store.Status {
	rec := s.records[key]
	status := rec.status(key, now)
	if rec == nil || !rec.foreign {
		status.Set = s.limits[key]
	}
	return status
}
