package mongolock

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/store"
)

// A mongoWrite runs a write under the write concern that it is to have.
type mongoWrite func(func(*mongo.Collection) (mongoReply, error)) (mongoReply, error)

// leave removes a holder from among those it shares the key with, and with the last
// one the document. It keeps rev: that somebody left makes no join wrong.
func (m *mongoStore) leave(ctx context.Context, r store.Ref, write mongoWrite) (mongoReply, error) {
	filter := m.ours(r.Key, inMode(r.Mode), exists(fieldHolders+"."+r.ID))
	update := bson.D{{Key: "$unset", Value: bson.D{{Key: fieldHolders + "." + r.ID, Value: ""}}}, stampAt}
	return m.drop(ctx, r.Key, filter, update, write)
}

// drop is the update that removes a holder, and what follows if nobody is left.
func (m *mongoStore) drop(ctx context.Context, key string, filter, update bson.D, write mongoWrite) (mongoReply, error) {
	reply, err := write(func(coll *mongo.Collection) (mongoReply, error) {
		return m.modifyIn(ctx, coll, filter, update, mongoAfter)
	})
	if err != nil || !reply.found {
		return reply, err
	}
	m.timed(reply)
	m.last(ctx, key, &reply.record, write)
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
func (m *mongoStore) last(ctx context.Context, key string, seen *mongoRecord, write mongoWrite) {
	if seen.foreign != "" || len(seen.holders) > 0 || seen.mode == store.Exclusive {
		return
	}
	now, _ := m.clock.Read()
	named := bson.E{Key: fieldRev, Value: seen.rev}
	if !seen.exclusiveWanted.After(now.Earliest) {
		filter := m.ours(key, m.noWriter(named, now)...)
		if m.broken.deleteWithoutRev {
			filter = m.ours(key)
		}
		gone, err := write(func(coll *mongo.Collection) (mongoReply, error) { return m.remove(ctx, coll, filter) })
		if err != nil {
			return
		}
		if gone.found {
			seen.wanted, seen.exclusiveWanted = gone.record.wanted, gone.record.exclusiveWanted
			return
		}
	}
	kept, err := write(func(coll *mongo.Collection) (mongoReply, error) {
		return m.modifyIn(ctx, coll, m.ours(key, named), bson.D{
			{Key: "$set", Value: bson.D{{Key: fieldExpireAt, Value: mongoDate(now.Earliest)}}}, stampAt,
		}, mongoAfter)
	})
	if err == nil && kept.found {
		m.timed(kept)
		seen.wanted, seen.exclusiveWanted = kept.record.wanted, kept.record.exclusiveWanted
	}
}

// finish is last, for a leave that was cut short after its first command.
func (m *mongoStore) finish(ctx context.Context, r store.Ref, write mongoWrite) (mongoReply, error) {
	image, err := m.find(ctx, r.Key)
	if err != nil {
		return image, joinNotApplied(err)
	}
	if image.found && r.Mode != store.Exclusive {
		m.last(ctx, r.Key, &image.record, write)
	}
	return image, nil
}

// undoJoin removes what a claim of who shares may have left, and by a new revision
// bars it if it is still on its way as the join of the one that it named. In one
// command: between two of them it could come in.
func (m *mongoStore) undoJoin(ctx context.Context, r store.Ref, joined bson.ObjectID) (mongoReply, error) {
	holds := exists(fieldHolders + "." + r.ID)
	if m.broken.undoDeletes {
		return m.removeDurably(ctx, m.ours(r.Key, holds))
	}
	if !joined.IsZero() {
		holds = bson.E{Key: "$or", Value: bson.A{bson.D{holds}, bson.D{{Key: fieldRev, Value: joined}}}}
	}
	update := bson.D{
		{Key: "$unset", Value: bson.D{{Key: fieldHolders + "." + r.ID, Value: ""}}},
		{Key: "$set", Value: bson.D{{Key: fieldRev, Value: bson.NewObjectID()}}},
		stampAt,
	}
	return m.drop(ctx, r.Key, m.ours(r.Key, holds), update, m.journaled)
}

// Withdraw takes back the word of a writer who gave up. It is a hint that is taken
// back: a fault here costs time.
func (m *mongoStore) Withdraw(ctx context.Context, key string, until time.Time) error {
	ctx = bare(ctx)
	write := func(command func(*mongo.Collection) (mongoReply, error)) (mongoReply, error) { return command(m.soft) }
	filter := m.ours(key, bson.E{Key: fieldExclusiveWanted, Value: mongoDate(until)})
	update := bson.D{{Key: "$unset", Value: bson.D{{Key: fieldExclusiveWanted, Value: ""}}}, stampAt}
	_, err := m.drop(ctx, key, filter, update, write)
	return err
}
