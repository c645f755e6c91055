package mongolock

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Undo removes what a claim of unknown outcome left, by its ID and in its session:
// the delete's higher transaction number makes the server refuse the claim if it
// comes later, also if the delete found nothing. Where writes have no numbers,
// having found nothing proves nothing, and the engine repeats it; having found the
// claim settles it, as it was sent but once.
//
// A claim without an unsettled attempt was answered for certain, or has run out, or
// was never made, and then it is not made any more.
func (m *mongoStore) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := knownMode(claim.Mode); err != nil {
		return false, err
	}
	attempt, pending := m.memory.take(claim.ID)
	if pending {
		defer func() {
			if settled {
				attempt.end()
			} else {
				m.memory.keep(claim.ID, attempt, m.clock.Now())
			}
		}()
		if !m.broken.undoElsewhere {
			ctx = attempt.in(ctx)
		}
	}
	if !pending || m.broken.undoElsewhere {
		ctx = bare(ctx)
	}
	var joined bson.ObjectID
	if pending {
		joined = attempt.rev
	}
	reply, err := m.cleanUp(ctx, claim, from, joined)
	if err != nil {
		return false, mongoerr.Mark(err)
	}
	m.memory.forget(claim.ID)
	if from != nil {
		m.memory.forget(from.ID)
	}
	if reply.found {
		return true, nil
	}
	if !pending {
		m.memory.undo(claim.ID)
		return true, nil
	}
	return m.server.Load().numbers || knob.UndoOnce, nil
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
	return m.removeDurably(ctx, m.ours(claim.Key, mongoExclusive, holds))
}

func isBroken(err error) bool {
	_, ok := errors.AsType[*store.BrokenError](err)
	return ok
}
