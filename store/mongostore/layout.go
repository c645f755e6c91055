package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// A layout tells the steps of internal/mongo/mongolease how the documents look.
type layout struct{ base *mongobase.Base }

func (layout) Name(r store.Ref) (bson.D, error) { return bson.D{{Key: "_id", Value: r.Key}}, nil }

func (layout) Fields(id string) mongolease.Fields { return holder(id) }

func (layout) Named(string) []bson.E { return []bson.E{{Key: fieldMark, Value: shape}} }

func (l layout) Holds(id string) []bson.E {
	return append(l.Named(id), exists(fieldHolders+"."+id))
}

func (layout) Read(document bson.Raw) record { return readRecord(document) }

// Beside reports whether FindMany reads how many permits the key has: when people or waiters look at
// it, and when permits are released. Of several keys it reads that of those that need it.
func (layout) Beside(r store.Ref) bool { return r.Mode == "" || r.Mode == store.Permits }

// needs reports whether the number of a key matters, given its document: it may be all that there is
// to show of it, or those who wait for permits go by it.
func (layout) needs(r store.Ref, seen reply) bool {
	return r.Mode == "" && !seen.Found() || seen.Record.permits() && (r.Mode == "" || len(seen.Record.Line) > 0)
}

func (l layout) FindMany(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]reply, error) {
	keys := make([]string, len(refs))
	for i, r := range refs {
		keys[i] = r.Key
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
	found := make(map[string]reply, len(distinct))
	limits := make(map[string]limitRecord) // of those keys of which it is read
	read := func(ids bson.A) error {
		return l.base.FindAll(ctx, coll, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, len(ids), func(document bson.Raw) {
			if key, is := limitOf(document); is {
				limits[key] = readLimit(document)
				return
			}
			r := readRecord(document)
			found[r.key] = reply{Reply: mongobase.Reply{Image: document}, Record: r}
		})
	}
	ids := bson.A{}
	for _, key := range distinct {
		ids = append(ids, key)
	}
	if len(refs) == 1 && l.Beside(refs[0]) {
		limits[keys[0]] = limitRecord{}
		ids = append(ids, limitName(keys[0]).Value)
	}
	err := read(ids)
	var more bson.A
	for _, r := range refs {
		if _, asked := limits[r.Key]; !asked && l.Beside(r) && l.needs(r, found[r.Key]) { // SecantusDB is slow at many such names
			limits[r.Key] = limitRecord{}
			more = append(more, limitName(r.Key).Value)
		}
	}
	if err == nil && len(more) > 0 {
		err = read(more)
	}
	images := make([]reply, len(refs))
	for i, key := range keys {
		images[i] = found[key]
		if set, asked := limits[key]; asked {
			images[i].Record = images[i].Record.with(set)
		}
	}
	return images, err
}
