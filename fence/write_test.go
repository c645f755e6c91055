package fence_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

func TestAnOlderTokenIsRefusedAndTheSameOrANewerOneApplied(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, count *sent) {
		put(t, coll, byX)
		for i, token := range []int64{10, 10, 11, math.MaxInt64} {
			n := count.during(func() {
				result, err := write(t.Context(), coll, token, i)
				require.NoError(t, err, "token %d", token)
				require.EqualValues(t, 1, result.MatchedCount, "token %d", token)
			})
			assert.Equal(t, 1, n, "commands of a write that succeeds")
			holds(t, coll, bson.M{"_fence": token, "v": int32(i)})
		}
		n := count.during(func() {
			_, err := write(t.Context(), coll, 12, 99)
			refused(t, err, 12, math.MaxInt64)
		})
		assert.Equal(t, 2, n, "commands of a write that is refused")
		holds(t, coll, bson.M{"_fence": int64(math.MaxInt64), "v": int32(3)})
	})
}

func TestAMissingDocumentIsNoRefusal(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		put(t, coll, d("_id", "y", "_fence", int64(100)))
		result, err := write(t.Context(), coll, 1, 1)
		require.NoError(t, err)
		assert.Zero(t, result.MatchedCount)
		assert.Zero(t, result.UpsertedCount)
	})
}

func TestADocumentWithoutAFenceIsOlderThanEveryToken(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		for _, doc := range []bson.D{byX, d("_id", "x", "_fence", nil), d("_id", "x", "_fence", int64(-1))} {
			put(t, coll, doc)
			_, err := write(t.Context(), coll, 1, 1)
			assert.NoError(t, err, "%v", doc)
			holds(t, coll, bson.M{"_fence": int64(1), "v": int32(1)})
			remove(t, coll, byX)
		}
	})
}

func TestAFenceOfAnotherTypeIsReported(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		for _, c := range []struct {
			field any
			text  string
		}{{"five", "five"}, {bson.A{int64(3), int64(99)}, "99"}, {bson.A{int64(99), int64(3)}, "99"}, {bson.A{nil}, "null"}, {bson.A{}, "[]"}, {bson.A{bson.A{int64(3)}}, "3"}} {
			if _, err := coll.InsertOne(t.Context(), d("_id", "x", "_fence", c.field)); err != nil {
				require.ErrorContains(t, err, "nested arrays are not supported", "only FerretDB stores no such document")
				continue
			}
			_, err := write(t.Context(), coll, 6, 1)
			assert.ErrorContains(t, err, c.text)
			assert.ErrorContains(t, err, "not a token")
			assert.NotErrorIs(t, err, fence.ErrFenced)
			_, err = write(t.Context(), coll, 6, 1, fence.Upsert())
			assert.ErrorContains(t, err, c.text, "as an upsert")
			assert.NotContains(t, get(t, coll), "v", "it has written over %v", c.field)
			remove(t, coll, byX)
		}
	})
}

func TestATokenWrittenAsADoubleInAShellCompares(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		put(t, coll, d("_id", "x", "_fence", 5.5))
		_, err := write(t.Context(), coll, 5, 1)
		refused(t, err, 5, 6)
		_, err = write(t.Context(), coll, 6, 1)
		assert.NoError(t, err)
	})
}

func TestFieldsFenceIndependently(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		put(t, coll, byX)
		_, err := write(t.Context(), coll, 9, 1, fence.Field("epoch"))
		require.NoError(t, err)
		holds(t, coll, bson.M{"epoch": int64(9), "_fence": nil})
		_, err = write(t.Context(), coll, 8, 2, fence.Field("epoch"))
		refused(t, err, 8, 9)
		_, err = write(t.Context(), coll, 8, 2)
		assert.NoError(t, err, "by the other field")
	})
}

func TestAWriteOutsideThePackageIsNeitherCheckedNorRefused(t *testing.T) {
	coll, _ := collection(t, server(t))
	put(t, coll, d("_id", "x", "_fence", int64(5)))
	_, err := coll.UpdateOne(t.Context(), byX, set("v", 1))
	require.NoError(t, err)
	holds(t, coll, bson.M{"v": int32(1), "_fence": int64(5)})
	_, err = coll.ReplaceOne(t.Context(), byX, d("v", 2))
	require.NoError(t, err)
	_, err = fence.UpdateOne(t.Context(), coll, 4, byX, set("v", 3))
	assert.NoError(t, err, "the driver's replacement has removed the token")
}

// raced has eight writers write under rising tokens, in any order, and returns the tokens
// in the order in which they were applied, and the last one.
func raced(t *testing.T, uri string, tokens int, write func(coll *mongo.Collection, token int64, update bson.D) error) (applied []int64, last int64) {
	t.Helper()
	coll, _ := collection(t, uri)
	put(t, coll, byX)
	var wg sync.WaitGroup
	turns := make(chan int64)
	for range 8 {
		wg.Go(func() {
			for token := range turns {
				if err := write(coll, token, d("$push", d("log", token), "$set", d("last", token))); err != nil {
					assert.ErrorIs(t, err, fence.ErrFenced, "token %d", token)
				}
			}
		})
	}
	for _, i := range rand.Perm(tokens) {
		turns <- int64(i) + 1
	}
	close(turns)
	wg.Wait()
	var doc struct {
		Log  []int64
		Last int64
	}
	require.NoError(t, coll.FindOne(t.Context(), byX).Decode(&doc))
	return doc.Log, doc.Last
}

func TestOnceANewerTokenWroteNoOlderOneIsApplied(t *testing.T) {
	applied, last := raced(t, server(t, "atomic"), 60, func(coll *mongo.Collection, token int64, update bson.D) error {
		_, err := fence.UpdateOne(t.Context(), coll, token, byX, update)
		return err
	})
	assert.EqualValues(t, 60, last)
	assert.IsIncreasing(t, applied)
}

func TestControlWithoutTheFenceAnOlderTokenIsApplied(t *testing.T) {
	applied, _ := raced(t, server(t, "atomic"), 60, func(coll *mongo.Collection, token int64, update bson.D) error {
		_, err := coll.UpdateOne(t.Context(), byX, update)
		return err
	})
	assert.Len(t, applied, 60)
	assert.False(t, slices.IsSorted(applied), "the test shows nothing: %v", applied)
}

// The write of a holder that was stopped arrives after its successor has written.
func TestALateWriteIsRefusedWhenItArrives(t *testing.T) {
	uri := server(t, "atomic")
	proxy := faultproxy.New(t, uri)
	stale, _ := collection(t, proxy.URI(), options.Client().SetRetryWrites(false))
	fresh, _ := collection(t, uri)
	fresh = fresh.Database().Client().Database(stale.Database().Name()).Collection(stale.Name())
	put(t, fresh, byX)

	late := proxy.On(faultproxy.Command("update").Nth(1), faultproxy.Hold())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := fence.UpdateOne(ctx, stale, 1, byX, set("v", "stale"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = fence.UpdateOne(t.Context(), fresh, 2, byX, set("v", "fresh"))
	require.NoError(t, err)
	late.Release()
	<-late.Applied()
	holds(t, fresh, bson.M{"v": "fresh", "_fence": int64(2)})
}

func TestAnUnacknowledgedWriteIsAnError(t *testing.T) {
	coll, _ := collection(t, server(t))
	put(t, coll, byX)
	coll = coll.Clone(options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	for name, write := range writers {
		for _, opts := range [][]fence.UpsertOption{nil, {fence.Upsert()}} {
			_, err := write(t.Context(), coll, 1, 1, opts...)
			assert.ErrorContains(t, err, "acknowledge", name)
		}
	}
	_, err := fence.InsertOne(t.Context(), coll, 1, d("v", 1))
	assert.ErrorContains(t, err, "acknowledge", "InsertOne")
}

func TestTheDriversOptionsArePassedOn(t *testing.T) {
	coll, _ := collection(t, server(t, "expressions"))
	put(t, coll, d("_id", "x", "list", bson.A{1, 2, 3}))
	filters := fence.UpdateOptions(options.UpdateOne().SetArrayFilters([]any{d("e", d("$gte", 2))}))
	_, err := fence.UpdateOne(t.Context(), coll, 1, byX, set("list.$[e]", 0), filters)
	require.NoError(t, err)
	holds(t, coll, bson.M{"list": bson.A{int32(1), int32(0), int32(0)}})
	upsert := fence.ReplaceOptions(options.Replace().SetUpsert(true))
	_, err = fence.ReplaceOne(t.Context(), coll, 1, d("name", "n"), d("v", 1), upsert)
	assert.ErrorContains(t, err, "_id", "an upsert in the driver's options is noticed")
	_, err = fence.InsertOne(t.Context(), coll, 1, d("v", 1), fence.InsertOptions(options.InsertOne().SetComment("c")))
	assert.NoError(t, err)
}

// The server's error has no value of such an _id, but a key of the collation.
func TestAStaleInsertIsRefusedByTheCollationOfItsCollection(t *testing.T) {
	coll, _ := collection(t, server(t, "mongodb"))
	opts := options.CreateCollection().SetCollation(&options.Collation{Locale: "en", Strength: 2})
	require.NoError(t, coll.Database().CreateCollection(t.Context(), coll.Name(), opts))
	put(t, coll, d("_id", "x", "_fence", int64(9)))
	_, err := fence.InsertOne(t.Context(), coll, 7, d("_id", "X"))
	refused(t, err, 7, 9)
	_, err = fence.UpdateByID(t.Context(), coll, 7, "X", set("v", 1), fence.Upsert())
	refused(t, err, 7, 9)
}
