package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Look reads keys with one find, however many there are.
func (s *Steps[R, X]) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	ctx = command.Bare(ctx)
	if len(keys) == 0 {
		return nil, nil
	}
	if err := s.Base.ReadFresh(ctx); err != nil {
		return nil, server.NotApplied(err)
	}
	refs := make([]store.Ref, len(keys))
	for i, key := range keys {
		refs[i].Key = key
	}
	images, err := s.FindMany(ctx, s.Base.Soft, refs)
	if err != nil {
		return nil, server.NotApplied(err)
	}
	at := s.Base.Clock.Now()
	seen := make([]store.Status, len(keys))
	var strangers []error
	for i, key := range keys {
		record := images[i].Record
		if foreign := record.Foreign(); foreign != nil {
			strangers = append(strangers, fmt.Errorf("%q: %w", key, foreign))
			var nothing R
			record = nothing
		}
		s.Base.Saw(key, record.Marks(), at)
		seen[i] = s.Status(key, record)
	}
	return seen, errors.Join(strangers...)
}
