package mongobase

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// FindAll reads documents, at most that many, and hands them out one by one. They come in one
// batch; by default a batch would have 101 documents.
func (b *Base) FindAll(ctx context.Context, coll *mongo.Collection, filter bson.D, most int, each func(bson.Raw), opts ...options.Lister[options.FindOptions]) error {
	batch := options.Find().SetBatchSize(int32(min(most+1, 10_000))) //nolint:gosec // bounded
	cursor, err := coll.Find(ctx, filter, append(opts, batch)...)
	if err != nil {
		return err
	}
	defer cursor.Close(ctx)
	for cursor.Next(ctx) {
		each(slices.Clone(cursor.Current))
	}
	return cursor.Err()
}

// ByID rewrites an $or beside a document's _id as an $and around it. To MongoDB the two are
// equal. A simple planner may read the whole collection for the former: SecantusDB's does.
func ByID(filter bson.D) bson.D {
	named := func(name string) int { return slices.IndexFunc(filter, func(e bson.E) bool { return e.Key == name }) }
	either := named("$or")
	if either < 0 || named("_id") < 0 {
		return filter
	}
	inside := bson.D{filter[either]}
	filter = slices.Clone(filter)
	if all := named("$and"); all >= 0 {
		conditions, _ := filter[all].Value.(bson.A)
		filter[all].Value = append(slices.Clip(conditions), inside)
		return slices.Delete(filter, either, either+1)
	}
	filter[either] = bson.E{Key: "$and", Value: bson.A{inside}}
	return filter
}
