package mongolock

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// leave removes a holder from among those it shares the key with, and with the last
// one the document. It keeps rev: that somebody left makes no join wrong.
func (m *mongoStore) leave(ctx context.Context, r store.Ref, coll *mongo.Collection) (mongoReply, error) {
	filter := m.ours(r.Key, inMode(r.Mode), exists(fieldHolders+"."+r.ID))
	update := bson.D{{Key: "$unset", Value: bson.D{{Key: fieldHolders + "." + r.ID, Value: ""}}}, stampAt}
	return m.drop(ctx, r.Key, filter, update, coll)
}

// drop is the update that removes a holder, and what follows if nobody is left.
func (m *mongoStore) drop(ctx context.Context, key string, filter, update bson.D, coll *mongo.Collection) (mongoReply, error) {
	reply, err := m.modifyIn(ctx, coll, filter, update, mongobase.After)
	if err != nil || !reply.Found() {
		return reply, err
	}
	m.last(ctx, key, &reply.record, coll)
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
func (m *mongoStore) last(ctx context.Context, key string, seen *mongoRecord, coll *mongo.Collection) {
	if seen.foreign != "" || len(seen.holders) > 0 || seen.mode == store.Exclusive {
		return
	}
	now := m.base.Now()
	named := bson.E{Key: fieldRev, Value: seen.rev}
	if !seen.exclusiveWanted.After(now.Earliest) {
		filter := m.ours(key, m.noWriter(named, now)...)
		if m.broken.deleteWithoutRev {
			filter = m.ours(key)
		}
		gone, err := m.remove(ctx, coll, filter)
		if err != nil {
			return
		}
		if gone.Found() {
			seen.wanted, seen.exclusiveWanted = gone.record.wanted, gone.record.exclusiveWanted
			return
		}
	}
	kept, err := m.modifyIn(ctx, coll, m.ours(key, named), bson.D{
		{Key: "$set", Value: bson.D{{Key: fieldExpireAt, Value: mongobase.Date(now.Earliest)}}}, stampAt,
	}, mongobase.After)
	if err == nil && kept.Found() {
		seen.wanted, seen.exclusiveWanted = kept.record.wanted, kept.record.exclusiveWanted
	}
}

// finish is last, for a leave that was cut short after its first command.
func (m *mongoStore) finish(ctx context.Context, r store.Ref, coll *mongo.Collection) (mongoReply, error) {
	image, err := m.find(ctx, r.Key)
	if err != nil {
		return image, mongoerr.NotApplied(err)
	}
	if image.Found() && r.Mode != store.Exclusive {
		m.last(ctx, r.Key, &image.record, coll)
	}
	return image, nil
}

// undoJoin removes what a claim of who shares may have left, and by a new revision
// bars it if it is still on its way as the join of the one that it named. In one
// command: between two of them it could come in.
func (m *mongoStore) undoJoin(ctx context.Context, r store.Ref, joined bson.ObjectID) (mongoReply, error) {
	holds := exists(fieldHolders + "." + r.ID)
	if m.broken.undoDeletes {
		return m.remove(ctx, m.base.Durable, m.ours(r.Key, holds))
	}
	if !joined.IsZero() {
		holds = bson.E{Key: "$or", Value: bson.A{bson.D{holds}, bson.D{{Key: fieldRev, Value: joined}}}}
	}
	update := bson.D{
		{Key: "$unset", Value: bson.D{{Key: fieldHolders + "." + r.ID, Value: ""}}},
		{Key: "$set", Value: bson.D{newRev()}},
		stampAt,
	}
	return m.drop(ctx, r.Key, m.ours(r.Key, holds), update, m.base.Durable)
}

// Withdraw takes back the word of a writer who gave up. It is a hint that is taken
// back: a fault here costs time.
func (m *mongoStore) Withdraw(ctx context.Context, key string, until time.Time) error {
	ctx = mongobase.Bare(ctx)
	filter := m.ours(key, bson.E{Key: fieldExclusiveWanted, Value: mongobase.Date(until)})
	update := bson.D{{Key: "$unset", Value: bson.D{{Key: fieldExclusiveWanted, Value: ""}}}, stampAt}
	_, err := m.drop(ctx, key, filter, update, m.base.Soft)
	return err
}
