package doclock

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/store"
)

// Undo removes what a claim of unknown outcome left, by its ID and in its session.
// A document that the claim created stays, free, with its initial value: that is
// what was asked for.
func (s *docStore) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := modeIs(claim.Mode); err != nil {
		return false, err
	}
	which, where := bson.A{claim.ID}, claim
	if from != nil {
		which, where = append(which, from.ID), *from
	}
	filter, err := s.where(where,
		bson.E{Key: s.path(fieldMark), Value: shape},
		bson.E{Key: s.path(fieldID), Value: bson.D{{Key: "$in", Value: which}}})
	if err != nil {
		return false, err
	}
	return s.base.Undo(ctx, claim.ID, func(ctx context.Context, _ *mongobase.Attempt) (found bool, err error) {
		if s.broken.undoElsewhere {
			ctx = mongobase.Bare(ctx)
		}
		reply, err := s.modify(ctx, filter, s.leaving(true), false)
		if err == nil {
			s.forget(claim.ID, where.ID)
		}
		return reply.Found(), err
	})
}
