package mongobase

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// FindAll reads documents, of which there are as many as most, and hands them out one by
// one. They come in one batch; by default it would have 101 documents.
func (b *Base) FindAll(ctx context.Context, coll *mongo.Collection, filter bson.D, most int, each func(bson.Raw), opts ...options.Lister[options.FindOptions]) error {
	batch := options.Find().SetBatchSize(int32(min(most+1, 10_000))) //nolint:gosec // bounded
	cursor, err := b.FindMany(ctx, coll, filter, append(opts, batch)...)
	if err != nil {
		return err
	}
	defer cursor.Close(ctx)
	for cursor.Next(ctx) {
		each(slices.Clone(cursor.Current()))
	}
	return cursor.Err()
}
