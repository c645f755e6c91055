package filestore

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
)

// Look reads keys without changing them. It takes no lock, because files are replaced
// as a whole.
func (s *Store) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all := make([]store.Status, len(keys))
	var foreign []error
	for i, key := range keys {
		if err := ended(ctx); err != nil {
			return nil, err
		}
		rec, seen, err := s.read(key)
		switch {
		case errors.Is(err, store.ErrForeign):
			all[i] = store.Status{Key: key, Now: seen.now}
			foreign = append(foreign, err)
		case err != nil:
			return nil, err
		default:
			all[i] = rec.status(seen.now)
		}
	}
	return all, errors.Join(foreign...)
}

// List yields the keys that begin with prefix, in byte order. Each is shown as it was when it
// was read: the list is not of one moment.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		all, err := s.list(ctx, prefix)
		for _, status := range all {
			if err := ended(ctx); err != nil {
				yield(store.Status{}, err)
				return
			}
			if !yield(status, nil) {
				return
			}
		}
		if err != nil {
			yield(store.Status{}, err)
		}
	}
}

func (s *Store) list(ctx context.Context, prefix string) ([]store.Status, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	names, err := s.files.Names()
	if err != nil {
		return nil, fault(err, false)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return len(name) != len(hostfile.Name("")) }) // no key's: some cannot be read
	var all []store.Status
	for _, name := range names {
		if err := ended(ctx); err != nil {
			return nil, err
		}
		text, err := s.files.Read(name)
		if err != nil {
			return nil, fault(err, false)
		}
		rec, err := parse(text)
		if err != nil || hostfile.Name(rec.Key) != name || !strings.HasPrefix(rec.Key, prefix) {
			continue // foreign, or removed meanwhile
		}
		now, _ := s.clock.now(rec)
		all = append(all, rec.status(now))
	}
	slices.SortFunc(all, func(a, b store.Status) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}
