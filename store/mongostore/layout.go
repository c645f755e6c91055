package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// A layout tells the steps of internal/mongolease how the documents look.
type layout struct{ *Store }

func (layout) Where(r store.Ref, more ...bson.E) (bson.D, error) { return ours(r.Key, more...), nil }

func (layout) Holds(id string) []bson.E { return []bson.E{exists(fieldHolders + "." + id)} }

func (layout) Unbroken(id string) []bson.E { return holder(id).Unbroken() }

func (layout) Alive(id string, by mongobase.Bearing) []bson.E { return holder(id).Alive(by) }

func (layout) Before(id string, beat int64) bson.E { return holder(id).Before(beat) }

func (layout) Extend(id string, t mongolease.Tenure) bson.D {
	ends := make(bson.D, 0, 4)
	if !t.Since.IsZero() {
		ends = append(ends, bson.E{Key: of(id, fieldSince), Value: mongobase.Date(t.Since)})
	}
	ends = append(ends,
		bson.E{Key: of(id, fieldExpireAt), Value: mongobase.Date(t.Until)},
		bson.E{Key: fieldExpireAt, Value: mongobase.Date(t.Until)},
		holder(id).Lasting(t))
	return bson.D{{Key: "$max", Value: ends}, {Key: "$set", Value: bson.D(holder(id).Stamp(t))}, stampAt}
}

func (layout) Touch(stamp bool) bson.D {
	if !stamp {
		return bson.D{stampAt}
	}
	return bson.D{{Key: "$currentDate", Value: bson.D{
		{Key: fieldAt, Value: true},
		{Key: fieldStamp, Value: bson.D{{Key: "$type", Value: "timestamp"}}},
	}}}
}

func (l layout) Send(ctx context.Context, what mongolease.Step, coll *mongo.Collection, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (reply, error) {
	return l.modifyIn(ctx, what, coll, filter, update, opts)
}

func (layout) Model(what mongolease.Step, filter, update bson.D) mongo.WriteModel {
	if knob.On {
		filter, update, _ = tampered(what, filter, update, nil)
	}
	return &mongo.UpdateOneModel{Filter: filter, Update: update}
}

func (l layout) Find(ctx context.Context, r store.Ref) (reply, error) { return l.find(ctx, r.Key) }

func (l layout) FindMany(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]reply, error) {
	if len(refs) == 1 && coll == l.base.Soft {
		image, err := l.find(ctx, refs[0].Key)
		return []reply{image}, err
	}
	keys := make([]string, len(refs))
	for i, r := range refs {
		keys[i] = r.Key
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
	// In one batch; by default it would have 101 documents.
	cursor, err := l.base.FindMany(ctx, coll, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: distinct}}}},
		options.Find().SetBatchSize(int32(min(len(distinct)+1, 10_000))))
	if err != nil {
		return nil, err
	}
	defer cursor.Close(ctx)
	found := make(map[string]reply, len(distinct))
	for cursor.Next(ctx) {
		image := read(mongobase.Reply{Image: slices.Clone(cursor.Current())}, readRecord)
		found[image.Record.key] = image
	}
	images := make([]reply, len(refs))
	for i, key := range keys {
		images[i] = found[key]
	}
	return images, cursor.Err()
}
