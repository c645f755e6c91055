package fence_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

func TestUpsertCreatesUnlessANewerTokenHasWritten(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, count *sent) {
		n := count.during(func() {
			result, err := write(t.Context(), coll, 5, 1, fence.Upsert())
			require.NoError(t, err)
			assert.EqualValues(t, 1, result.UpsertedCount)
			assert.Equal(t, "x", result.UpsertedID)
		})
		assert.Equal(t, 1, n, "commands")
		holds(t, coll, bson.M{"_fence": int64(5), "v": int32(1)})
		_, err := write(t.Context(), coll, 4, 2, fence.Upsert())
		refused(t, err, 4, 5)
		result, err := write(t.Context(), coll, 6, 3, fence.Upsert())
		require.NoError(t, err)
		assert.EqualValues(t, 1, result.MatchedCount)
	})
}

// Another upsert comes between the server's look and its insert: that is no refusal.
func TestAnUpsertThatLostARaceTriesAgain(t *testing.T) {
	proxy := faultproxy.New(t, server(t, "atomic"))
	coll, _ := collection(t, proxy.URI())
	put(t, coll, d("_id", "x", "_fence", int64(3)))
	proxy.On(faultproxy.Command("update").Nth(1), faultproxy.Fail(11000))
	_, err := fence.UpdateByID(t.Context(), coll, 5, "x", set("v", 1), fence.Upsert())
	require.NoError(t, err)
	holds(t, coll, bson.M{"_fence": int64(5), "v": int32(1)})
}

func TestUpsertTakesFiltersOfEveryFormThatShowTheirID(t *testing.T) {
	coll, _ := collection(t, server(t))
	for name, filter := range map[string]any{
		"bson.M": bson.M{"_id": "x", "a": 1}, "map": ownMap{"_id": "x"}, "bson.Raw": raw(t, d("a", 1, "_id", "x")), "$eq": d("_id", d("$eq", "x")),
	} {
		t.Run(name, func(t *testing.T) {
			remove(t, coll, bson.D{})
			for range 2 {
				_, err := fence.UpdateOne(t.Context(), coll, 5, filter, set("v", 1), fence.Upsert())
				require.NoError(t, err)
			}
			holds(t, coll, bson.M{"_fence": int64(5), "v": int32(1)})
			_, err := fence.UpdateOne(t.Context(), coll, 4, filter, set("v", 2), fence.Upsert())
			refused(t, err, 4, 5)
		})
	}
}

// A condition beside _id that names a value gives it to the new document, as in the
// driver. Any other stays a condition.
func TestAnUpsertTakesTheValuesOfItsFilter(t *testing.T) {
	coll, _ := collection(t, server(t))
	for name, filter := range map[string]bson.D{
		"plain":     d("_id", "x", "a", 1),
		"with $and": d("_id", "x", "a", 1, "$and", bson.A{d("b", d("$ne", 2))}),
		"with $or":  d("_id", "x", "a", 1, "$or", bson.A{d("b", d("$ne", 2)), d("b", d("$ne", 3))}),
	} {
		t.Run(name, func(t *testing.T) {
			remove(t, coll, bson.D{})
			for range 2 {
				_, err := fence.UpdateOne(t.Context(), coll, 5, filter, set("v", 1), fence.Upsert())
				require.NoError(t, err)
			}
			holds(t, coll, bson.M{"a": int32(1), "v": int32(1), "_fence": int64(5)})
			_, err := fence.UpdateOne(t.Context(), coll, 4, filter, set("v", 2), fence.Upsert())
			refused(t, err, 4, 5)
		})
	}
}

func TestAnUpsertWhoseOtherConditionsFailIsADuplicateKey(t *testing.T) {
	coll, _ := collection(t, server(t))
	put(t, coll, d("_id", "x", "state", "done"))
	_, err := fence.UpdateOne(t.Context(), coll, 5, d("_id", "x", "state", "open"), set("v", 1), fence.Upsert())
	isDuplicate(t, err)
}

// Concurrent upserts of one document insert it once; the others find it.
func TestConcurrentUpsertsEndWithTheHighestToken(t *testing.T) {
	uri := server(t, "atomic")
	coll, _ := collection(t, uri)
	for range 10 {
		var wg sync.WaitGroup
		for token := int64(1); token <= 8; token++ {
			wg.Go(func() {
				_, err := fence.UpdateByID(t.Context(), coll, token, "x", set("v", token), fence.Upsert())
				if err != nil {
					assert.ErrorIs(t, err, fence.ErrFenced, "token %d", token)
				}
			})
		}
		wg.Wait()
		holds(t, coll, bson.M{"_fence": int64(8), "v": int64(8)})
		remove(t, coll, byX)
	}
}

func TestInsertOneCarriesTheTokenAndTellsWhichWasFirst(t *testing.T) {
	type thing struct {
		ID string `bson:"_id"`
		V  int
	}
	uri := server(t)
	for name, doc := range map[string]any{
		"bson.D": d("_id", "x", "v", 1), "bson.M": bson.M{"_id": "x", "v": 1}, "struct": thing{"x", 1}, "pointer": &thing{"x", 1},
	} {
		t.Run(name, func(t *testing.T) {
			coll, _ := collection(t, uri)
			result, err := fence.InsertOne(t.Context(), coll, 5, doc)
			require.NoError(t, err)
			assert.Equal(t, "x", result.InsertedID)
			holds(t, coll, bson.M{"_fence": int64(5), "v": int32(1)})
			_, err = fence.InsertOne(t.Context(), coll, 4, doc)
			refused(t, err, 4, 5)
			for _, token := range []int64{5, 6} {
				_, err = fence.InsertOne(t.Context(), coll, token, doc)
				isDuplicate(t, err)
			}
		})
	}
}

func TestADuplicateOfAnotherFieldIsNoRefusal(t *testing.T) {
	coll, _ := collection(t, server(t))
	index := mongo.IndexModel{Keys: d("name", 1), Options: options.Index().SetUnique(true)}
	_, err := coll.Indexes().CreateOne(t.Context(), index)
	require.NoError(t, err)
	_, err = fence.InsertOne(t.Context(), coll, 5, d("_id", "x", "name", "n"))
	require.NoError(t, err)
	_, err = fence.InsertOne(t.Context(), coll, 4, d("_id", "y", "name", "n"))
	isDuplicate(t, err)
}

func TestADeletedDocumentLeavesNoTokenBehind(t *testing.T) {
	coll, _ := collection(t, server(t))
	_, err := fence.InsertOne(t.Context(), coll, 5, byX)
	require.NoError(t, err)
	remove(t, coll, byX)
	_, err = fence.InsertOne(t.Context(), coll, 4, byX)
	assert.NoError(t, err)
}
