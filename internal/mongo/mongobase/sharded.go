package mongobase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
)

// shardingAged is how long the store believes the answer to whether a collection is sharded,
// and by which key. It may be sharded while the program runs.
const shardingAged = 5 * time.Minute

// checkSharding returns an error for a collection that is sharded by anything but _id. In such
// a collection two shards could each have a document of one key, because an _id is unique only
// within a shard. If it is sharded by _id, every document is on one shard, and only that shard
// judges it.
func (b *Base) checkSharding(ctx context.Context) error {
	ctx = Bare(ctx)
	is, err := b.sharded(ctx)
	if err != nil {
		return err
	}
	if is {
		if err := b.checkShardKey(ctx); err != nil {
			return err
		}
	}
	b.shardingSeen.Store(int64(b.Clock.Now()))
	return nil
}

// sharded reports whether the collection is sharded. collStats tells; under a strict API the
// number of shards that answer $collStats does. Without the right to ask it is assumed not to
// be.
func (b *Base) sharded(ctx context.Context) (bool, error) {
	stats, err := b.Soft.Database().RunCommand(ctx, bson.D{{Key: "collStats", Value: b.Soft.Name()}}).Raw()
	if err == nil {
		is, _ := stats.Lookup("sharded").BooleanOK()
		return is, nil
	}
	cursor, err := b.Soft.Aggregate(ctx, mongo.Pipeline{{{Key: "$collStats", Value: bson.D{{Key: "count", Value: bson.D{}}}}}})
	if err != nil {
		if c := mongoerr.ClassOf(err); c == mongoerr.Refused || c == mongoerr.NoCommand {
			return false, nil // the collection does not exist yet, or may not be looked at
		}
		return false, err
	}
	defer cursor.Close(ctx)
	shards := 0
	for cursor.Next(ctx) {
		shards++
	}
	return shards > 1, cursor.Err()
}

func (b *Base) checkShardKey(ctx context.Context) error {
	name := b.Soft.Database().Name() + "." + b.Soft.Name()
	if b.Unsharded {
		return fmt.Errorf("the collection %s is sharded: these locks need one that is not", name)
	}
	config := b.Soft.Database().Client().Database("config").Collection("collections")
	found, err := config.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil // one document by itself, on several shards for $collStats
	case err != nil && mongoerr.ClassOf(err) == mongoerr.Refused:
		return fmt.Errorf("the collection %s is sharded, and this user may not see by which key: "+
			"locks need one sharded by _id; grant the right to find in config.collections (%w)", name, err)
	case err != nil:
		return err
	}
	key, _ := found.Lookup("key").DocumentOK()
	elements, err := key.Elements()
	if err == nil && len(elements) == 1 && elements[0].Key() == "_id" {
		return nil
	}
	return fmt.Errorf("the collection %s is sharded by %v: locks need one that is sharded by _id, or not at all", name, key)
}
