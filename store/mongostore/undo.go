package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// Undo removes what a claim of unknown outcome left, by its ID and in its session. The
// higher transaction number of the removal makes the server refuse the claim if it comes
// later, even if the removal found nothing.
func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := knownMode(claim.Mode); err != nil {
		return false, err
	}
	return s.base.Undo(ctx, claim.ID, func(ctx context.Context, a *mongobase.Attempt) (found bool, err error) {
		if knob.UndoElsewhere {
			ctx = mongobase.Bare(ctx)
		}
		reply, err := s.cleanUp(ctx, claim, from, a.Rev)
		if err != nil {
			return false, err
		}
		s.steps.Memory.Forget(claim.ID)
		if from != nil {
			s.steps.Memory.Forget(from.ID)
		}
		return reply.Found(), nil
	})
}

// cleanUp sends the command that removes what a claim left. With from it also removes the
// holder that the claim was to replace.
func (s *Store) cleanUp(ctx context.Context, claim store.Ref, from *store.Ref, joined bson.ObjectID) (reply, error) {
	if claim.Mode != store.Exclusive {
		return s.undoJoin(ctx, claim, joined)
	}
	holds := exists(fieldHolders + "." + claim.ID)
	if from != nil {
		holds = bson.E{Key: "$or", Value: bson.A{bson.D{exists(fieldHolders + "." + from.ID)}, bson.D{holds}}}
	}
	return s.remove(ctx, mongolease.Undo, s.base.Durable, ours(claim.Key, exclusively, holds))
}
