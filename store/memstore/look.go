package memstore

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/mongolock/mongolock/store"
)

// Look reads keys without changing them.
func (s *Store) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	all := make([]store.Status, len(keys))
	var foreign []error
	for i, key := range keys {
		rec := s.records[key]
		all[i] = rec.status(key, now)
		if rec != nil && rec.foreign {
			foreign = append(foreign, rec.foreignError(key))
		}
	}
	return all, errors.Join(foreign...)
}

// List yields the keys that begin with prefix, in byte order, as they were at one
// moment. The store is not locked while the caller's loop runs.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		if err := ended(ctx); err != nil {
			yield(store.Status{}, err)
			return
		}
		for _, status := range s.list(prefix) {
			if err := ended(ctx); err != nil {
				yield(store.Status{}, err)
				return
			}
			if !yield(status, nil) {
				return
			}
		}
	}
}

func (s *Store) list(prefix string) []store.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	var all []store.Status
	for key, rec := range s.records {
		if rec != s.spare && !rec.foreign && strings.HasPrefix(key, prefix) {
			all = append(all, rec.status(key, now))
		}
	}
	slices.SortFunc(all, func(a, b store.Status) int { return strings.Compare(a.Key, b.Key) })
	return all
}
