package mongolock

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/store"
)

// Undo removes what a claim of unknown outcome left, by its ID and in its session:
// the delete's higher transaction number makes the server refuse the claim if it
// comes later, also if the delete found nothing.
func (m *mongoStore) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := knownMode(claim.Mode); err != nil {
		return false, err
	}
	return m.base.Undo(ctx, claim.ID, func(ctx context.Context, a *mongobase.Attempt) (found bool, err error) {
		if m.broken.undoElsewhere {
			ctx = mongobase.Bare(ctx)
		}
		reply, err := m.cleanUp(ctx, claim, from, a.Rev)
		if err != nil {
			return false, err
		}
		m.leases.forget(claim.ID)
		if from != nil {
			m.leases.forget(from.ID)
		}
		return reply.Found(), nil
	})
}

// cleanUp is the command that removes what a claim left, and what it was to take the
// place of.
func (m *mongoStore) cleanUp(ctx context.Context, claim store.Ref, from *store.Ref, joined bson.ObjectID) (mongoReply, error) {
	if claim.Mode != store.Exclusive {
		return m.undoJoin(ctx, claim, joined)
	}
	holds := exists(fieldHolders + "." + claim.ID)
	if from != nil {
		holds = bson.E{Key: "$or", Value: bson.A{bson.D{exists(fieldHolders + "." + from.ID)}, bson.D{holds}}}
	}
	return m.remove(ctx, m.base.Durable, m.ours(claim.Key, mongoExclusive, holds))
}

func isBroken(err error) bool {
	_, ok := errors.AsType[*store.BrokenError](err)
	return ok
}
