package doclock

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// releaseTogether releases holders with one find and one bulk.
func (s *docStore) releaseTogether(ctx context.Context, batch []store.Ending) []store.Ended {
	b := s.steps.BeginBulk(ctx, batch, modeIs, func(r store.Ref, seen record) bool {
		_, holds := seen.Holder(r.ID)
		return holds
	})
	b.Take(
		func(r store.Ref) ([]bson.E, bson.D) {
			return append(s.Holds(r.ID), s.lock.Unawaited()), bson.D(s.leaving(s.residue(r.ID)))
		},
		func(r store.Ref) ([]bson.E, bson.D) { return s.Holds(r.ID), bson.D(s.leaving(true)) })
	b.Keep(func(r store.Ref, t mongolease.Tenure) ([]bson.E, bson.D) {
		return s.Holds(r.ID), bson.D(s.staying(t))
	})
	for i, e := range batch {
		if l, ok := s.steps.Memory.Of(e.ID); ok && b.Answers[i].Err == nil {
			s.freed.add(e.Key, l.Own.doc)
		}
	}
	return b.End()
}
