package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/store"
)

// Undo removes what a claim of unknown outcome left, by its ID and in its session.
func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := knownMode(claim.Mode); err != nil {
		return false, err
	}
	return s.steps.Undo(ctx, claim, from, func(ctx context.Context, a *command.Attempt) (found bool, err error) {
		reply, err := s.cleanUp(ctx, claim, from, a.Rev)
		return reply.Found(), err
	})
}

// cleanUp sends the command that removes what a claim left. With from it also removes the holder
// that the claim was to replace. If the claim may still be on its way as a join that named a
// revision, a new revision bars it. Both are one command: between two the join could land.
//
// The claim's place may stay in the line: its waiter asks on.
func (s *Store) cleanUp(ctx context.Context, claim store.Ref, from *store.Ref, joined int64) (reply, error) {
	holds := exists(fieldHolders + "." + claim.ID)
	update := command.Change(s.dropping(claim, 0))
	or := func(other bson.E) { holds = bson.E{Key: "$or", Value: bson.A{bson.D{holds}, bson.D{other}}} }
	switch {
	case from != nil:
		or(exists(fieldHolders + "." + from.ID))
		update = update.Unset(fieldHolders + "." + from.ID)
	case claim.Mode != store.Exclusive:
		update = append(update, moveRev)
		if joined != 0 {
			or(bson.E{Key: fieldRev, Value: joined})
		}
	}
	filter := ours(claim.Key, holds)
	if claim.Mode == store.Exclusive {
		filter = append(filter, exclusively)
	}
	image, err := s.steps.Send(ctx, lease.Undo, s.base.Durable, filter, bson.D(update), command.After) // with those who wait: Settle tells them
	if err == nil && image.Found() {
		s.last(ctx, claim.Key, image.Record, s.base.Durable)
	}
	return image, err
}
