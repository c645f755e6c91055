package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// shardingAged is how long the store believes the answer to whether a collection is sharded,
// and by which key. It may be sharded while the program runs.
const shardingAged = 5 * time.Minute

// checkSharding returns an error for a collection that is sharded by anything but _id. In such
// a collection two shards could each have a document of one key, because an _id is unique only
// within a shard. If it is sharded by _id, every document is on one shard, and only that shard
// judges it.
func (s *Server) checkSharding(ctx context.Context) error {
	ctx = mongo.NewSessionContext(ctx, nil)
	is, err := s.sharded(ctx)
	if err != nil {
		return err
	}
	if is {
		if err := s.checkShardKey(ctx); err != nil {
			return err
		}
	}
	s.shardingSeen.Store(int64(s.Clock.Now()))
	return nil
}

// sharded reports whether the collection is sharded. collStats tells; under a strict API the
// number of shards that answer $collStats does. Without the right to ask it is assumed not to
// be.
func (s *Server) sharded(ctx context.Context) (bool, error) {
	stats, err := s.coll.Database().RunCommand(ctx, bson.D{{Key: "collStats", Value: s.coll.Name()}}).Raw()
	if err == nil {
		is, _ := stats.Lookup("sharded").BooleanOK()
		return is, nil
	}
	cursor, err := s.coll.Aggregate(ctx, mongo.Pipeline{{{Key: "$collStats", Value: bson.D{{Key: "count", Value: bson.D{}}}}}})
	if err != nil {
		if c := ClassOf(err); c == Refused || c == NoCommand {
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

func (s *Server) checkShardKey(ctx context.Context) error {
	name := s.coll.Database().Name() + "." + s.coll.Name()
	if s.Unsharded {
		return fmt.Errorf("the collection %s is sharded: these locks need one that is not", name)
	}
	config := s.coll.Database().Client().Database("config").Collection("collections")
	found, err := config.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil // one document by itself, on several shards for $collStats
	case err != nil && ClassOf(err) == Refused:
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
