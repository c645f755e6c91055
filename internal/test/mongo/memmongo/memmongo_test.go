package memmongo_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
)

// inVirtualTime runs a test with a collection that has document "a".
func inVirtualTime(t *testing.T, test func(t *testing.T, link *memmongo.Link, coll *mongo.Collection)) {
	t.Helper()
	started := time.Now()
	synctest.Test(t, func(t *testing.T) {
		link := memmongo.New().Link()
		client, err := link.Connect()
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = client.Disconnect(context.Background())
			link.Close()
		})
		coll := client.Database("d").Collection("c")
		_, err = coll.InsertOne(t.Context(), bson.M{"_id": "a", "n": 1})
		require.NoError(t, err)
		test(t, link, coll)
	})
	assert.Less(t, time.Since(started), 20*time.Second)
}

func TestTheDriverReachesItInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *memmongo.Link, coll *mongo.Collection) {
		time.Sleep(time.Hour) // virtual, which is the claim
		_, err := coll.UpdateByID(t.Context(), "a", bson.M{"$inc": bson.M{"n": 1}})
		require.NoError(t, err)
		raw, err := coll.FindOne(t.Context(), bson.M{"_id": "a"}).Raw()
		require.NoError(t, err)
		assert.EqualValues(t, 2, raw.Lookup("n").AsInt64())
	})
}

func TestFeaturesThatTheDatabaseLacksAreRefusedByName(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *memmongo.Link, coll *mongo.Collection) {
		ctx := t.Context()
		for what, call := range map[string]func() error{
			"no transactions": func() error {
				return coll.Database().Client().UseSession(ctx, func(ctx context.Context) error {
					if err := mongo.SessionFromContext(ctx).StartTransaction(); err != nil {
						return err
					}
					_, err := coll.InsertOne(ctx, bson.M{"_id": "b"})
					return err
				})
			},
			"does more than count": func() error {
				_, err := coll.Aggregate(ctx, bson.A{bson.M{"$match": bson.M{}}, bson.M{"$project": bson.M{"n": 1}}})
				return err
			},
			"unknown operator: $regex":         func() error { return coll.FindOne(ctx, bson.M{"n": bson.M{"$regex": "a"}}).Err() },
			"unknown top level operator: $nor": func() error { return coll.FindOne(ctx, bson.M{"$nor": bson.A{bson.M{"n": 7}}}).Err() },
			"$expr needs an array":             func() error { return coll.FindOne(ctx, bson.M{"$expr": bson.M{"$eq": bson.A{1, 1}}}).Err() },
			"unknown modifier: $pop":           func() error { _, err := coll.UpdateByID(ctx, "a", bson.M{"$pop": bson.M{"n": 1}}); return err },
			"find with returnKey":              func() error { return coll.FindOne(ctx, bson.M{}, options.FindOne().SetReturnKey(true)).Err() },
			"find with collation": func() error {
				return coll.FindOne(ctx, bson.M{}, options.FindOne().SetCollation(&options.Collation{Locale: "de"})).Err()
			},
			"update with arrayFilters": func() error {
				_, err := coll.UpdateByID(ctx, "a", bson.M{"$set": bson.M{"n": 1}}, options.UpdateOne().SetArrayFilters([]any{bson.M{"x": 1}}))
				return err
			},
			"no such command: 'distinct'":     func() error { return coll.Distinct(ctx, "n", bson.M{}).Err() },
			"a value of type 128-bit decimal": func() error { _, err := coll.InsertOne(ctx, bson.M{"n": bson.Decimal128{}}); return err },
			"duplicate key error":             func() error { _, err := coll.InsertOne(ctx, bson.M{"_id": "a"}); return err },
			"an update must be a document":    func() error { _, err := coll.UpdateByID(ctx, "a", bson.A{bson.M{"$set": bson.M{"n": 1}}}); return err },
		} {
			assert.ErrorContains(t, call(), what)
		}
	})
}

func TestAUniqueIndexIsHeeded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *memmongo.Link, coll *mongo.Collection) {
		ctx := t.Context()
		_, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "n", Value: 1}}, Options: options.Index().SetUnique(true)})
		require.NoError(t, err)
		_, err = coll.InsertOne(ctx, bson.M{"_id": "b", "n": 1})
		require.True(t, mongo.IsDuplicateKeyError(err), "%v", err)
		_, err = coll.InsertOne(ctx, bson.M{"_id": "b", "n": 2})
		require.NoError(t, err)
		_, err = coll.UpdateByID(ctx, "b", bson.M{"$set": bson.M{"n": 1}})
		require.True(t, mongo.IsDuplicateKeyError(err), "%v", err)
		err = coll.FindOneAndUpdate(ctx, bson.M{"_id": "b"}, bson.M{"$inc": bson.M{"n": -1}}).Err()
		require.True(t, mongo.IsDuplicateKeyError(err), "%v", err)
		_, err = coll.UpdateByID(ctx, "b", bson.M{"$set": bson.M{"n": 2, "m": 1}})
		require.NoError(t, err, "its own value is in nobody's way")
		specs, err := coll.Indexes().ListSpecifications(ctx)
		require.NoError(t, err)
		assert.Len(t, specs, 2)
	})
}

func TestAReaderOfACappedCollectionHearsOfAnInsertAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *memmongo.Link, coll *mongo.Collection) {
		require.NoError(t, coll.Database().CreateCollection(t.Context(), "log", options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<16)))
		log := coll.Database().Collection("log")
		_, err := log.InsertOne(t.Context(), bson.M{"_id": 1})
		require.NoError(t, err)
		cursor, err := log.Find(t.Context(), bson.M{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(time.Hour))
		require.NoError(t, err)
		require.True(t, cursor.Next(t.Context()))
		began := time.Now()
		time.AfterFunc(time.Minute, func() { _, _ = log.InsertOne(context.Background(), bson.M{"_id": 2}) })
		require.True(t, cursor.Next(t.Context()))
		assert.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, cursor.Close(t.Context()))
	})
}

func TestAReaderOfACappedCollectionSleepsOnThroughWhatItsFilterLeavesOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *memmongo.Link, coll *mongo.Collection) {
		require.NoError(t, coll.Database().CreateCollection(t.Context(), "log", options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<16)))
		log := coll.Database().Collection("log")
		_, err := log.InsertOne(t.Context(), bson.M{"_id": 1, "to": "b"})
		require.NoError(t, err)
		filter := bson.M{"$or": bson.A{bson.M{"to": "a"}, bson.M{"topic": bson.M{"$in": bson.A{"x"}}, "to": ""}}}
		cursor, err := log.Find(t.Context(), filter, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(time.Hour))
		require.NoError(t, err)
		require.False(t, cursor.TryNext(t.Context()), "there is nothing yet")
		began := time.Now()
		for i, to := range []bson.M{{"to": "b"}, {"to": ""}, {"to": "", "topic": "y"}, {"to": "b", "topic": "x"}, {"to": "", "topic": "x"}, {"to": "a"}} {
			time.AfterFunc(time.Duration(i+1)*time.Minute, func() { _, _ = log.InsertOne(context.Background(), to) })
		}
		for _, after := range []time.Duration{5 * time.Minute, 6 * time.Minute} {
			require.True(t, cursor.TryNext(t.Context()), "with one getMore: %v", cursor.Err())
			assert.Equal(t, after, time.Since(began))
		}
		require.NoError(t, cursor.Close(t.Context()))
	})
}

func TestALinkThatIsCutFailsAndComesBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, link *memmongo.Link, coll *mongo.Collection) {
		away := errors.New("the cable is out")
		link.Cut(away)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := coll.InsertOne(ctx, bson.M{"_id": "b"})
		require.Error(t, err, "its connection broke")
		_, err = coll.InsertOne(ctx, bson.M{"_id": "b"})
		require.ErrorContains(t, err, "the cable is out")
		link.Cut(nil)
		_, err = coll.InsertOne(t.Context(), bson.M{"_id": "b"})
		require.NoError(t, err)
	})
}
