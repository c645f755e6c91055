package fence_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/testserver"
)

// server is one that has what the test wants. Several writers at once want "atomic":
// one that applies a filter and its update as one. No other can fence them.
func server(t *testing.T, wants ...string) string {
	t.Helper()
	return testserver.URI(t, wants...)
}

// sent counts the commands of a client's collection.
type sent struct{ n atomic.Int64 }

func (s *sent) during(f func()) int64 {
	before := s.n.Load()
	f()
	return s.n.Load() - before
}

func collection(t *testing.T, uri string, more ...*options.ClientOptions) (*mongo.Collection, *sent) {
	t.Helper()
	count := new(sent)
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName != "endSessions" && e.CommandName != "dropDatabase" {
			count.n.Add(1)
		}
	}}
	client, err := mongo.Connect(append([]*options.ClientOptions{options.Client().ApplyURI(uri).SetMonitor(monitor)}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	db := client.Database("fence_" + bson.NewObjectID().Hex())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = db.Drop(ctx)
		_ = client.Disconnect(ctx)
	})
	return db.Collection("things"), count
}

func d(pairs ...any) bson.D {
	doc := bson.D{}
	for i := 0; i < len(pairs); i += 2 {
		doc = append(doc, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return doc
}

func set(key string, value any) bson.D { return d("$set", d(key, value)) }

var byX = d("_id", "x")

// put stores a document past the fence.
func put(t *testing.T, coll *mongo.Collection, doc any) {
	t.Helper()
	if _, err := coll.InsertOne(t.Context(), doc); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, coll *mongo.Collection) bson.M {
	t.Helper()
	var doc bson.M
	if err := coll.FindOne(t.Context(), byX).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func refused(t *testing.T, err error, token, newer int64) {
	t.Helper()
	var fenced *fence.Error
	if !errors.As(err, &fenced) || !errors.Is(err, fence.ErrFenced) {
		t.Fatalf("got %v", err)
	}
	if fenced.Token != token || fenced.Newer != newer {
		t.Errorf("got %+v, want %d refused by %d", fenced, token, newer)
	}
}

// Each way to write, storing v in the document x.
type writer func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.Option) (*mongo.UpdateResult, error)

var writers = map[string]writer{
	"UpdateOne": func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.Option) (*mongo.UpdateResult, error) {
		return fence.UpdateOne(ctx, coll, token, byX, set("v", v), opts...)
	},
	"UpdateOne, pipeline": func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.Option) (*mongo.UpdateResult, error) {
		return fence.UpdateOne(ctx, coll, token, byX, mongo.Pipeline{set("v", v)}, opts...)
	},
	"UpdateByID": func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.Option) (*mongo.UpdateResult, error) {
		return fence.UpdateByID(ctx, coll, token, "x", set("v", v), opts...)
	},
	"ReplaceOne": func(ctx context.Context, coll *mongo.Collection, token int64, v int, opts ...fence.Option) (*mongo.UpdateResult, error) {
		return fence.ReplaceOne(ctx, coll, token, byX, d("v", v), opts...)
	},
}

// wantsOf skips a subtest of that name if the server does not compute.
func wantsOf(t *testing.T, name string) {
	t.Helper()
	if strings.Contains(name, "ipeline") || name == "$expr" {
		server(t, "expressions")
	}
}

func onEachWriter(t *testing.T, test func(t *testing.T, write writer, coll *mongo.Collection, count *sent)) {
	uri := server(t)
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			wantsOf(t, name)
			coll, count := collection(t, uri)
			test(t, write, coll, count)
		})
	}
}

func TestAnOlderTokenIsRefusedAndTheSameOrANewerOneApplied(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, count *sent) {
		put(t, coll, byX)
		for i, token := range []int64{10, 10, 11, math.MaxInt64} {
			n := count.during(func() {
				result, err := write(t.Context(), coll, token, i)
				if err != nil || result.MatchedCount != 1 {
					t.Fatalf("token %d: %+v, %v", token, result, err)
				}
			})
			if n != 1 {
				t.Errorf("%d commands for a write that succeeds", n)
			}
			if doc := get(t, coll); doc["_fence"] != token || doc["v"] != int32(i) {
				t.Errorf("token %d: %v", token, doc)
			}
		}
		n := count.during(func() {
			_, err := write(t.Context(), coll, 12, 99)
			refused(t, err, 12, math.MaxInt64)
		})
		if n != 2 {
			t.Errorf("%d commands for a write that is refused", n)
		}
		if doc := get(t, coll); doc["_fence"] != int64(math.MaxInt64) || doc["v"] != int32(3) {
			t.Errorf("the refused write left %v", doc)
		}
	})
}

func TestNoSuchDocumentIsNoRefusal(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		put(t, coll, d("_id", "y", "_fence", int64(100)))
		result, err := write(t.Context(), coll, 1, 1)
		if err != nil || result.MatchedCount != 0 || result.UpsertedCount != 0 {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

func TestADocumentWithoutAFenceIsOlderThanEveryToken(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		for _, doc := range []bson.D{byX, d("_id", "x", "_fence", nil), d("_id", "x", "_fence", int64(-1))} {
			put(t, coll, doc)
			if _, err := write(t.Context(), coll, 1, 1); err != nil {
				t.Errorf("%v: %v", doc, err)
			}
			if doc := get(t, coll); doc["_fence"] != int64(1) || doc["v"] != int32(1) {
				t.Errorf("left %v", doc)
			}
			if _, err := coll.DeleteOne(t.Context(), byX); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAFenceOfAnotherTypeIsReported(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		put(t, coll, d("_id", "x", "_fence", "five"))
		_, err := write(t.Context(), coll, 6, 1)
		if err == nil || errors.Is(err, fence.ErrFenced) || !strings.Contains(err.Error(), "five") {
			t.Errorf("got %v", err)
		}
		if _, err := write(t.Context(), coll, 6, 1, fence.Upsert()); err == nil || !strings.Contains(err.Error(), "five") {
			t.Errorf("upsert: %v", err)
		}
	})
}

func TestNumbersWrittenInAShellCompare(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		put(t, coll, d("_id", "x", "_fence", 5.5))
		_, err := write(t.Context(), coll, 5, 1)
		refused(t, err, 5, 6)
		if _, err := write(t.Context(), coll, 6, 1); err != nil {
			t.Error(err)
		}
	})
}

func TestFieldsFenceByThemselves(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, _ *sent) {
		put(t, coll, byX)
		if _, err := write(t.Context(), coll, 9, 1, fence.Field("epoch")); err != nil {
			t.Fatal(err)
		}
		if doc := get(t, coll); doc["epoch"] != int64(9) || doc["_fence"] != nil {
			t.Errorf("got %v", doc)
		}
		_, err := write(t.Context(), coll, 8, 2, fence.Field("epoch"))
		refused(t, err, 8, 9)
		if _, err := write(t.Context(), coll, 8, 2); err != nil {
			t.Errorf("by the other field: %v", err)
		}
	})
}

func TestUpsertCreatesUnlessANewerTokenHasWritten(t *testing.T) {
	onEachWriter(t, func(t *testing.T, write writer, coll *mongo.Collection, count *sent) {
		n := count.during(func() {
			result, err := write(t.Context(), coll, 5, 1, fence.Upsert())
			if err != nil || result.UpsertedCount != 1 || result.UpsertedID != "x" {
				t.Fatalf("%+v, %v", result, err)
			}
		})
		if n != 1 {
			t.Errorf("%d commands", n)
		}
		if doc := get(t, coll); doc["_fence"] != int64(5) || doc["v"] != int32(1) {
			t.Errorf("got %v", doc)
		}
		_, err := write(t.Context(), coll, 4, 2, fence.Upsert())
		refused(t, err, 4, 5)
		if result, err := write(t.Context(), coll, 6, 3, fence.Upsert()); err != nil || result.MatchedCount != 1 {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// Another upsert came between the server's look and its insert: no refusal.
func TestAnUpsertThatLostARaceLooksAgain(t *testing.T) {
	proxy := faultproxy.New(t, server(t, "atomic"))
	coll, _ := collection(t, proxy.URI())
	put(t, coll, d("_id", "x", "_fence", int64(3)))
	proxy.On(faultproxy.Command("update").Nth(1), faultproxy.Fail(11000))
	if _, err := fence.UpdateByID(t.Context(), coll, 5, "x", set("v", 1), fence.Upsert()); err != nil {
		t.Fatal(err)
	}
	if doc := get(t, coll); doc["_fence"] != int64(5) || doc["v"] != int32(1) {
		t.Errorf("got %v", doc)
	}
}

func TestUpsertTakesFiltersOfEveryFormThatShowTheirID(t *testing.T) {
	coll, _ := collection(t, server(t))
	for name, filter := range map[string]any{
		"bson.M": bson.M{"_id": "x", "a": 1}, "map": ownMap{"_id": "x"}, "bson.Raw": raw(t, d("a", 1, "_id", "x")), "$eq": d("_id", d("$eq", "x")),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := coll.DeleteMany(t.Context(), bson.D{}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := fence.UpdateOne(t.Context(), coll, 5, filter, set("v", 1), fence.Upsert()); err != nil {
					t.Fatal(err)
				}
			}
			if doc := get(t, coll); doc["_fence"] != int64(5) || doc["v"] != int32(1) {
				t.Errorf("got %v", doc)
			}
			_, err := fence.UpdateOne(t.Context(), coll, 4, filter, set("v", 2), fence.Upsert())
			refused(t, err, 4, 5)
		})
	}
}

func TestAnUpsertWhoseOtherConditionsFailIsADuplicateKey(t *testing.T) {
	coll, _ := collection(t, server(t))
	put(t, coll, d("_id", "x", "state", "done"))
	_, err := fence.UpdateOne(t.Context(), coll, 5, d("_id", "x", "state", "open"), set("v", 1), fence.Upsert())
	if !mongo.IsDuplicateKeyError(err) || errors.Is(err, fence.ErrFenced) {
		t.Errorf("got %v", err)
	}
}

// Concurrent upserts of one document insert once; the rest find what is there.
func TestUpsertsAtOnceEndWithTheHighestToken(t *testing.T) {
	uri := server(t, "atomic")
	coll, _ := collection(t, uri)
	for range 10 {
		var wg sync.WaitGroup
		for token := int64(1); token <= 8; token++ {
			wg.Go(func() {
				_, err := fence.UpdateByID(t.Context(), coll, token, "x", set("v", token), fence.Upsert())
				if err != nil && !errors.Is(err, fence.ErrFenced) {
					t.Errorf("token %d: %v", token, err)
				}
			})
		}
		wg.Wait()
		if doc := get(t, coll); doc["_fence"] != int64(8) || doc["v"] != int64(8) {
			t.Errorf("got %v", doc)
		}
		if _, err := coll.DeleteOne(t.Context(), byX); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInsertOneCarriesTheTokenAndTellsWhoWasFirst(t *testing.T) {
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
			if err != nil || result.InsertedID != "x" {
				t.Fatalf("%+v, %v", result, err)
			}
			if doc := get(t, coll); doc["_fence"] != int64(5) || doc["v"] != int32(1) {
				t.Errorf("got %v", doc)
			}
			_, err = fence.InsertOne(t.Context(), coll, 4, doc)
			refused(t, err, 4, 5)
			for _, token := range []int64{5, 6} {
				if _, err = fence.InsertOne(t.Context(), coll, token, doc); !mongo.IsDuplicateKeyError(err) {
					t.Errorf("token %d: %v", token, err)
				}
			}
		})
	}
	t.Run("another key", func(t *testing.T) {
		coll, _ := collection(t, uri)
		index := mongo.IndexModel{Keys: d("name", 1), Options: options.Index().SetUnique(true)}
		if _, err := coll.Indexes().CreateOne(t.Context(), index); err != nil {
			t.Fatal(err)
		}
		if _, err := fence.InsertOne(t.Context(), coll, 5, d("_id", "x", "name", "n")); err != nil {
			t.Fatal(err)
		}
		if _, err := fence.InsertOne(t.Context(), coll, 4, d("_id", "y", "name", "n")); !mongo.IsDuplicateKeyError(err) {
			t.Errorf("got %v", err)
		}
	})
}

// What the package comment says of writes past the fence.
func TestAWriteThatDoesNotComeThroughHereIsNeitherSeenNorHeldUp(t *testing.T) {
	coll, _ := collection(t, server(t))
	put(t, coll, d("_id", "x", "_fence", int64(5)))
	if _, err := coll.UpdateOne(t.Context(), byX, set("v", 1)); err != nil {
		t.Fatal(err)
	}
	if doc := get(t, coll); doc["v"] != int32(1) || doc["_fence"] != int64(5) {
		t.Errorf("an update past the fence left %v", doc)
	}
	if _, err := coll.ReplaceOne(t.Context(), byX, d("v", 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := fence.UpdateOne(t.Context(), coll, 4, byX, set("v", 3)); err != nil {
		t.Errorf("a replacement past the fence has forgotten the token, and yet: %v", err)
	}
}

// What InsertOne says of documents that were deleted.
func TestWhatWasDeletedRemembersNoToken(t *testing.T) {
	coll, _ := collection(t, server(t))
	if _, err := fence.InsertOne(t.Context(), coll, 5, byX); err != nil {
		t.Fatal(err)
	}
	if _, err := coll.DeleteOne(t.Context(), byX); err != nil {
		t.Fatal(err)
	}
	if _, err := fence.InsertOne(t.Context(), coll, 4, byX); err != nil {
		t.Errorf("there is nothing to remember it, and yet: %v", err)
	}
}

// A condition beside _id that names a value gives that to the new document, as in the
// driver; one that cannot stays a condition.
func TestAnUpsertTakesTheValuesOfItsFilter(t *testing.T) {
	coll, _ := collection(t, server(t))
	for name, filter := range map[string]bson.D{
		"plain":     d("_id", "x", "a", 1),
		"with $and": d("_id", "x", "a", 1, "$and", bson.A{d("b", d("$ne", 2))}),
		"with $or":  d("_id", "x", "a", 1, "$or", bson.A{d("b", d("$ne", 2)), d("b", d("$ne", 3))}),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := coll.DeleteMany(t.Context(), bson.D{}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := fence.UpdateOne(t.Context(), coll, 5, filter, set("v", 1), fence.Upsert()); err != nil {
					t.Fatal(err)
				}
			}
			if doc := get(t, coll); doc["a"] != int32(1) || doc["v"] != int32(1) || doc["_fence"] != int64(5) {
				t.Errorf("got %v", doc)
			}
			_, err := fence.UpdateOne(t.Context(), coll, 4, filter, set("v", 2), fence.Upsert())
			refused(t, err, 4, 5)
		})
	}
}

// Writers with rising tokens, let loose in any order: what was applied rose.
func TestOnceANewerTokenWroteNoOlderOneIsApplied(t *testing.T) {
	uri := server(t, "atomic")
	const writers = 60
	race := func(t *testing.T, write func(coll *mongo.Collection, token int64) error) (applied []int64, last any) {
		coll, _ := collection(t, uri)
		put(t, coll, byX)
		var wg sync.WaitGroup
		turns := make(chan int64)
		for range 8 {
			wg.Go(func() {
				for token := range turns {
					if err := write(coll, token); err != nil && !errors.Is(err, fence.ErrFenced) {
						t.Errorf("token %d: %v", token, err)
					}
				}
			})
		}
		for _, i := range rand.Perm(writers) {
			turns <- int64(i) + 1
		}
		close(turns)
		wg.Wait()
		var doc struct {
			Log  []int64
			Last int64
		}
		if err := coll.FindOne(t.Context(), byX).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		return doc.Log, doc.Last
	}
	update := func(token int64) bson.D { return d("$push", d("log", token), "$set", d("last", token)) }

	t.Run("fenced", func(t *testing.T) {
		applied, last := race(t, func(coll *mongo.Collection, token int64) error {
			_, err := fence.UpdateOne(t.Context(), coll, token, byX, update(token))
			return err
		})
		if !slices.IsSorted(applied) || last != int64(writers) {
			t.Errorf("last %v, applied in this order: %v", last, applied)
		}
	})
	t.Run("negative control: without the fence they fall back", func(t *testing.T) {
		applied, _ := race(t, func(coll *mongo.Collection, token int64) error {
			_, err := coll.UpdateOne(t.Context(), byX, update(token))
			return err
		})
		if slices.IsSorted(applied) || len(applied) != writers {
			t.Errorf("this test shows nothing: %v", applied)
		}
	})
}

// The write of a holder that was stopped arrives when its successor has written.
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
	if _, err := fence.UpdateOne(ctx, stale, 1, byX, set("v", "stale")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if _, err := fence.UpdateOne(t.Context(), fresh, 2, byX, set("v", "fresh")); err != nil {
		t.Fatal(err)
	}
	late.Release()
	<-late.Applied()
	if doc := get(t, fresh); doc["v"] != "fresh" || doc["_fence"] != int64(2) {
		t.Errorf("the late write left %v", doc)
	}
}

func TestAnUnacknowledgedWriteIsAnError(t *testing.T) {
	coll, _ := collection(t, server(t))
	put(t, coll, byX)
	coll = coll.Clone(options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	for name, write := range writers {
		for _, opts := range [][]fence.Option{nil, {fence.Upsert()}} {
			if _, err := write(t.Context(), coll, 1, 1, opts...); err == nil || !strings.Contains(err.Error(), "acknowledge") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := fence.InsertOne(t.Context(), coll, 1, d("v", 1)); err == nil || !strings.Contains(err.Error(), "acknowledge") {
		t.Errorf("InsertOne: %v", err)
	}
}

func TestTheDriversOptionsArePassedOn(t *testing.T) {
	coll, _ := collection(t, server(t, "expressions"))
	put(t, coll, d("_id", "x", "list", bson.A{1, 2, 3}))
	filters := fence.UpdateOptions(options.UpdateOne().SetArrayFilters([]any{d("e", d("$gte", 2))}))
	if _, err := fence.UpdateOne(t.Context(), coll, 1, byX, set("list.$[e]", 0), filters); err != nil {
		t.Fatal(err)
	}
	if list := get(t, coll)["list"]; !reflect.DeepEqual(list, bson.A{int32(1), int32(0), int32(0)}) {
		t.Errorf("got %v", list)
	}
	upsert := fence.ReplaceOptions(options.Replace().SetUpsert(true))
	if _, err := fence.ReplaceOne(t.Context(), coll, 1, d("name", "n"), d("v", 1), upsert); err == nil || !strings.Contains(err.Error(), "_id") {
		t.Errorf("an upsert in the driver's options is not noticed: %v", err)
	}
	if _, err := fence.InsertOne(t.Context(), coll, 1, d("v", 1), fence.InsertOptions(options.InsertOne().SetComment("c"))); err != nil {
		t.Error(err)
	}
}
