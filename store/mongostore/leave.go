package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// leave removes a holder of a shared key, and with the last one the document. It keeps rev,
// because a holder that left invalidates no join.
func (s *Store) leave(ctx context.Context, r store.Ref, coll *mongo.Collection) (reply, error) {
	filter, update := leaving(r)
	return s.drop(ctx, mongolease.Leave, r.Key, filter, update, coll)
}

func leaving(r store.Ref) (filter, update bson.D) {
	return ours(r.Key, inMode(r.Mode), exists(fieldHolders+"."+r.ID)),
		bson.D{{Key: "$unset", Value: bson.D{{Key: fieldHolders + "." + r.ID, Value: ""}}}, stampAt}
}

// drop sends the update that removes a holder, and ends the document if no holder is left.
func (s *Store) drop(ctx context.Context, what mongolease.Step, key string, filter, update bson.D, coll *mongo.Collection) (reply, error) {
	reply, err := s.steps.Send(ctx, what, coll, filter, update, mongobase.After)
	if err != nil || !reply.Found() {
		return reply, err
	}
	s.last(ctx, key, &reply.Record, coll)
	return reply, nil
}

// last deletes a document that has no holders any more. The before-image shows a word that was
// left meanwhile. If it is a writer's word, the document stays for that writer: empty, and with
// an end that has just passed, so that the TTL index does not remove it at once.
//
// Both commands name rev, which every new holder changes. If they come late or twice, they find
// another revision, or nothing to do. If they fail, the holder has left all the same: an empty
// document blocks no claim, and the next one takes it over.
func (s *Store) last(ctx context.Context, key string, seen *record, coll *mongo.Collection) {
	if seen.Foreign() != nil || len(seen.Holders) > 0 || seen.mode == store.Exclusive {
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
			seen.WantedUntil, seen.exclusiveWanted = gone.Record.WantedUntil, gone.Record.exclusiveWanted
			return
		}
	}
	kept, err := s.steps.Send(ctx, mongolease.Last, coll, ours(key, named), bson.D{
		{Key: "$set", Value: bson.D{{Key: fieldExpireAt, Value: mongobase.Date(now.Earliest)}}}, stampAt,
	}, mongobase.After)
	if err == nil && kept.Found() {
		seen.WantedUntil, seen.exclusiveWanted = kept.Record.WantedUntil, kept.Record.exclusiveWanted
	}
}

// finish ends the document after a leave that was cut short after its first command.
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

// undoJoin removes what a claim in shared or permits mode may have left. If the claim may still
// be on its way as a join that named joined, a new revision bars it. Both are one command:
// between two commands the join could land.
func (s *Store) undoJoin(ctx context.Context, r store.Ref, joined int64) (reply, error) {
	holds := exists(fieldHolders + "." + r.ID)
	if joined != 0 {
		holds = bson.E{Key: "$or", Value: bson.A{bson.D{holds}, bson.D{{Key: fieldRev, Value: joined}}}}
	}
	update := bson.D{
		{Key: "$unset", Value: bson.D{{Key: fieldHolders + "." + r.ID, Value: ""}}},
		moveRev,
		stampAt,
	}
	return s.drop(ctx, mongolease.Undo, r.Key, ours(r.Key, holds), update, s.base.Durable)
}

// Withdraw takes back the word of a writer that gave up. If it fails, others lose only time.
func (s *Store) Withdraw(ctx context.Context, key string, until time.Time) error {
	ctx = mongobase.Bare(ctx)
	filter := ours(key, bson.E{Key: fieldExclusiveWanted, Value: mongobase.Date(until)})
	update := bson.D{{Key: "$unset", Value: bson.D{{Key: fieldExclusiveWanted, Value: ""}}}, stampAt}
	_, err := s.drop(ctx, mongolease.Word, key, filter, update, s.base.Soft)
	return err
}
