package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/store"
)

// A layout tells the steps of internal/mongo/lease how the documents look.
type layout struct{ base *command.Collection }

func (layout) Name(r store.Ref) (bson.D, error) { return bson.D{{Key: "_id", Value: r.Key}}, nil }

func (layout) Fields(id string) lease.Fields { return holder(id) }

func (layout) Named(string) []bson.E { return []bson.E{{Key: fieldMark, Value: shape}} }

func (l layout) Holds(id string) []bson.E {
	return append(l.Named(id), exists(fieldHolders+"."+id))
}

func (layout) Read(document bson.Raw) record { return readRecord(document) }

func (l layout) FindMany(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]reply, error) {
	keys := make([]string, len(refs))
	for i, r := range refs {
		keys[i] = r.Key
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
	ids := make(bson.A, len(distinct))
	for i, key := range distinct {
		ids[i] = key
	}
	found := make(map[string]reply, len(ids))
	err := l.base.FindAll(ctx, coll, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, len(ids), func(document bson.Raw) {
		r := readRecord(document)
		found[r.key] = reply{Reply: command.Reply{Image: document}, Record: r}
	})
	images := make([]reply, len(refs))
	for i, key := range keys {
		images[i] = found[key]
	}
	return images, err
}
