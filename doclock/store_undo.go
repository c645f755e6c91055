package doclock

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/store"
)

// Undo removes what a claim of unknown outcome left, by its ID and in its session. A
// document that the claim created stays, free and with its initial value, as the caller
// asked for it.
//
// A hand-over is settled even if nothing is found, and even if writes have no
// transaction numbers: it names the old holder, which never comes back.
func (s *docStore) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := modeIs(claim.Mode); err != nil {
		return false, err
	}
	which, where := bson.A{claim.ID}, claim
	if from != nil {
		which, where = append(which, from.ID), *from
	}
	return s.base.Undo(ctx, claim.ID, func(ctx context.Context, _ *mongobase.Attempt) (found bool, err error) {
		if s.broken.undoElsewhere {
			ctx = mongobase.Bare(ctx)
		}
		reply, err := s.takeOut(ctx, where, which)
		if err == nil {
			s.forget(claim.ID, where.ID)
		}
		return reply.Found() || from != nil, err
	})
}

// takeOut removes whichever of these holds the document. If the old holder of a
// hand-over had something to save, it is saved now, even if for the second time: the old
// holder was promised that its save is carried through, and the new one was told
// nothing. As in any release, a broken holder saves nothing.
func (s *docStore) takeOut(ctx context.Context, r store.Ref, which bson.A) (reply mongobase.Reply, err error) {
	holder := []bson.E{
		{Key: s.path(fieldMark), Value: shape},
		{Key: s.path(fieldID), Value: bson.D{{Key: "$in", Value: which}}},
	}
	if e := s.ending(r.ID); e != nil && !s.broken.dropSave {
		filter, err := s.where(r, append(s.living(), holder...)...)
		if err != nil {
			return reply, err
		}
		u := s.leaving(true)
		e.join(u)
		if reply, err = s.modify(ctx, filter, u, false); err != nil || reply.Found() {
			return reply, err
		}
	}
	filter, err := s.where(r, holder...)
	if err != nil {
		return reply, err
	}
	return s.modify(ctx, filter, s.leaving(true), false)
}
