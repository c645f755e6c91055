package doclock

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Undo removes what a claim of unknown outcome left, by its ID and in its session:
// the higher transaction number makes the server refuse the claim if it comes later,
// also if this found nothing. Where writes have no numbers, having found nothing
// proves nothing, and the engine repeats it; having found the claim settles it, as
// it was sent but once. A document that the claim created stays, free, with its
// initial value: that is what was asked for.
//
// A claim without an unsettled attempt was answered for certain, or has run out, or
// was never made, and then it is not made any more.
func (s *docStore) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := modeIs(claim.Mode); err != nil {
		return false, err
	}
	attempt, pending := s.base.Memory.Take(claim.ID)
	if pending {
		defer func() {
			if settled {
				attempt.End()
			} else {
				s.base.Memory.Keep(claim.ID, attempt, s.base.Clock.Now())
			}
		}()
		if !s.broken.undoElsewhere {
			ctx = attempt.In(ctx)
		}
	}
	if !pending || s.broken.undoElsewhere {
		ctx = mongobase.Bare(ctx)
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
	reply, err := s.modify(ctx, filter, s.leaving(true), false)
	if err != nil {
		return false, mongoerr.Mark(err)
	}
	s.forget(claim.ID)
	if from != nil {
		s.forget(from.ID)
	}
	if reply.Found() {
		return true, nil
	}
	if !pending {
		s.base.Memory.Undo(claim.ID)
		return true, nil
	}
	return s.base.Kind().Numbers, nil
}
