package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// leave removes a holder from among those it shares the key with, and with the last
// one the document. It keeps rev: that somebody left makes no join wrong.
func (s *Store) leave(ctx context.Context, r store.Ref, coll *mongo.Collection) (reply, error) {
	filter := ours(r.Key, inMode(r.Mode), exists(fieldHolders+"."+r.ID))
	update := bson.D{{Key: "$unset", Value: bson.D{{Key: fieldHolders + "." + r.ID, Value: ""}}}, stampAt}
	return s.drop(ctx, mongolease.Leave, r.Key, filter, update, coll)
}

// drop is the update that removes a holder, and what follows if nobody is left.
func (s *Store) drop(ctx context.Context, what mongolease.Step, key string, filter, update bson.D, coll *mongo.Collection) (reply, error) {
	reply, err := s.modifyIn(ctx, what, coll, filter, update, mongobase.After)
	if err != nil || !reply.Found() {
		return reply, err
	}
	s.last(ctx, key, &reply.Record, coll)
	return reply, nil
}

// last deletes a document that nobody is in any more. Its before-image shows a word
// that slipped in. If it is a writer's the document stays, for him alone: empty, and
// ended at a time that is just over, so that the TTL index does not sweep the word
// away with it.
//
// Both commands name rev, which everybody changes who comes in. Said late or twice
// they find another one, or nothing to do. And if they fail, the holder has left all
// the same: an empty document is in nobody's way, and the next claim takes it over.
func (s *Store) last(ctx context.Context, key string, seen *record, coll *mongo.Collection) {
	if seen.Foreign() != nil || len(seen.holders) > 0 || seen.mode == store.Exclusive {
		return
	}
	now := s.base.Now()
	named := bson.E{Key: fieldRev, Value: seen.rev}
	if !seen.exclusiveWanted.After(now.Earliest) {
		gone, err := s.remove(ctx, mongolease.Last, coll, ours(key, noWriter(named, now)...))
		if err != nil {
			return
		}
		if gone.Found() {
			seen.wanted, seen.exclusiveWanted = gone.Record.wanted, gone.Record.exclusiveWanted
			return
		}
	}
	kept, err := s.modifyIn(ctx, mongolease.Last, coll, ours(key, named), bson.D{
		{Key: "$set", Value: bson.D{{Key: fieldExpireAt, Value: mongobase.Date(now.Earliest)}}}, stampAt,
	}, mongobase.After)
	if err == nil && kept.Found() {
		seen.wanted, seen.exclusiveWanted = kept.Record.wanted, kept.Record.exclusiveWanted
	}
}

// finish is last, for a leave that was cut short after its first command.
func (s *Store) finish(ctx context.Context, r store.Ref, coll *mongo.Collection) (reply, error) {
	image, err := s.find(ctx, r.Key)
	if err != nil {
		return image, mongoerr.NotApplied(err)
	}
	if image.Found() && r.Mode != store.Exclusive {
		s.last(ctx, r.Key, &image.Record, coll)
	}
	return image, nil
}

// undoJoin removes what a claim of who shares may have left, and by a new revision
// bars it if it is still on its way as the join of the one that it named. In one
// command: between two of them it could come in.
func (s *Store) undoJoin(ctx context.Context, r store.Ref, joined bson.ObjectID) (reply, error) {
	holds := exists(fieldHolders + "." + r.ID)
	if knob.UndoDeletes {
		return s.remove(ctx, mongolease.Undo, s.base.Durable, ours(r.Key, holds))
	}
	if !joined.IsZero() {
		holds = bson.E{Key: "$or", Value: bson.A{bson.D{holds}, bson.D{{Key: fieldRev, Value: joined}}}}
	}
	update := bson.D{
		{Key: "$unset", Value: bson.D{{Key: fieldHolders + "." + r.ID, Value: ""}}},
		{Key: "$set", Value: bson.D{newRev()}},
		stampAt,
	}
	return s.drop(ctx, mongolease.Undo, r.Key, ours(r.Key, holds), update, s.base.Durable)
}

// Withdraw takes back the word of a writer who gave up. It is a hint that is taken
// back: a fault here costs time.
func (s *Store) Withdraw(ctx context.Context, key string, until time.Time) error {
	ctx = mongobase.Bare(ctx)
	filter := ours(key, bson.E{Key: fieldExclusiveWanted, Value: mongobase.Date(until)})
	update := bson.D{{Key: "$unset", Value: bson.D{{Key: fieldExclusiveWanted, Value: ""}}}, stampAt}
	_, err := s.drop(ctx, mongolease.Word, key, filter, update, s.base.Soft)
	return err
}
