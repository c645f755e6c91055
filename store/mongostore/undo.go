package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// Undo removes what a claim of unknown outcome left, by its ID and in its session.
func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := knownMode(claim.Mode); err != nil {
		return false, err
	}
	return s.steps.Undo(ctx, claim, from, func(ctx context.Context, a *mongobase.Attempt) (found bool, err error) {
		reply, err := s.cleanUp(ctx, claim, from, a.Rev)
		return reply.Found(), err
	})
}

// cleanUp sends the command that removes what a claim left. With from it also removes the
// holder that the claim was to replace.
func (s *Store) cleanUp(ctx context.Context, claim store.Ref, from *store.Ref, joined int64) (reply, error) {
	if claim.Mode != store.Exclusive {
		return s.undoJoin(ctx, claim, joined)
	}
	holds := exists(fieldHolders + "." + claim.ID)
	if from != nil {
		holds = bson.E{Key: "$or", Value: bson.A{bson.D{exists(fieldHolders + "." + from.ID)}, bson.D{holds}}}
	}
	return s.remove(ctx, mongolease.Undo, s.base.Durable, ours(claim.Key, exclusively, holds))
}
