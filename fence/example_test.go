package fence_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/fence"
)

// The examples run on the server of the tests; see TestMain. All but the first make
// their tokens up: in a program a token comes from a lease, as lease.Token().
var ctx = context.Background()

var connect = sync.OnceValues(func() (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")).SetServerSelectionTimeout(10 * time.Second))
})

// database returns an empty one, in place of the application's.
func database() *mongo.Database {
	client, err := connect()
	check(err)
	return client.Database("fence_" + rand.Text()[:8])
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	db := database()
	defer db.Drop(ctx)
	reports := db.Collection("reports")
	locks, err := mongolock.New(db.Collection("locks"))
	check(err)
	defer locks.Close()
	write := func(token int64, total int) error {
		_, err := fence.UpdateByID(ctx, reports, token, "today", bson.M{"$set": bson.M{"total": total}}, fence.Upsert())
		return err
	}

	slow, err := locks.Acquire(ctx, "nightly-report")
	check(err)
	check(slow.Release()) // or it is paused, and its lease runs out
	quick, err := locks.Acquire(ctx, "nightly-report")
	check(err)
	defer quick.Release()

	fmt.Println("the holder of the lock:", write(quick.Token(), 42))
	err = write(slow.Token(), 41)
	fmt.Println("the earlier holder is refused:", errors.Is(err, fence.ErrFenced))
	// Output:
	// the holder of the lock: <nil>
	// the earlier holder is refused: true
}

func ExampleUpdateOne() {
	db := database()
	defer db.Drop(ctx)
	jobs := db.Collection("jobs")
	_, err := jobs.InsertOne(ctx, bson.M{"_id": "import", "state": "running"}) // without a fence: older than every token
	check(err)

	finish := func(token int64, job string) {
		result, err := fence.UpdateOne(ctx, jobs, token, bson.M{"_id": job}, bson.M{"$set": bson.M{"state": "done"}})
		switch {
		case errors.Is(err, fence.ErrFenced):
			fmt.Println("another holder took over: stop")
		case err != nil:
			fmt.Println("it may have been stored or not:", err)
		case result.MatchedCount == 0:
			fmt.Println("there is no such job")
		default:
			fmt.Println("stored")
		}
	}
	finish(8, "import")
	finish(8, "import") // the same token, as often as it likes
	finish(7, "import")
	finish(7, "export")
	// Output:
	// stored
	// stored
	// another holder took over: stop
	// there is no such job
}

func ExampleUpdateByID() {
	db := database()
	defer db.Drop(ctx)
	reports := db.Collection("reports")
	_, err := reports.InsertOne(ctx, bson.M{"_id": "today", "total": 0})
	check(err)

	_, err = fence.UpdateByID(ctx, reports, 8, "today", bson.M{"$inc": bson.M{"total": 42}})
	fmt.Println(err)
	_, err = fence.UpdateByID(ctx, reports, 7, "today", bson.M{"$inc": bson.M{"total": 41}})
	fmt.Println(err)
	// Output:
	// <nil>
	// fence: token 7 is outdated: 8 has written
}

func ExampleReplaceOne() {
	type Report struct {
		ID    string `bson:"_id"`
		Total int    `bson:"total"`
	}
	db := database()
	defer db.Drop(ctx)
	reports := db.Collection("reports")
	_, err := reports.InsertOne(ctx, Report{"today", 0})
	check(err)

	for token, total := range []int{10, 11, 12} { // three holders, one after the other
		_, err := fence.ReplaceOne(ctx, reports, int64(token)+1, bson.M{"_id": "today"}, Report{"today", total})
		check(err)
	}
	stored, err := reports.FindOne(ctx, bson.M{"_id": "today"}).Raw()
	check(err)
	fmt.Println(stored)
	// Output: {"_id": "today","total": {"$numberInt":"12"},"_fence": {"$numberLong":"3"}}
}

func ExampleInsertOne() {
	db := database()
	defer db.Drop(ctx)
	reports := db.Collection("reports")
	report := bson.M{"_id": "today", "total": 42}

	_, err := fence.InsertOne(ctx, reports, 8, report)
	fmt.Println(err)
	_, err = fence.InsertOne(ctx, reports, 7, report)
	fmt.Println(err)
	_, err = fence.InsertOne(ctx, reports, 9, report) // no newer token has written, but the document exists
	fmt.Println(mongo.IsDuplicateKeyError(err), errors.Is(err, fence.ErrFenced))
	// Output:
	// <nil>
	// fence: token 7 is outdated: 8 has written
	// true false
}

// The error names the token that has written.
func ExampleError() {
	db := database()
	defer db.Drop(ctx)
	reports := db.Collection("reports")
	_, err := fence.InsertOne(ctx, reports, 8, bson.M{"_id": "today"})
	check(err)

	_, err = fence.UpdateByID(ctx, reports, 7, "today", bson.M{"$set": bson.M{"total": 41}})
	var fenced *fence.Error
	if errors.As(err, &fenced) {
		fmt.Println("my token is", fenced.Token, "and", fenced.Newer, "has written")
	}
	// Output: my token is 7 and 8 has written
}

// Two jobs, each under a lock of its own, write to the same documents. Each has a field
// of its own that fences it.
func ExampleField() {
	db := database()
	defer db.Drop(ctx)
	orders := db.Collection("orders")
	_, err := orders.InsertOne(ctx, bson.M{"_id": 17})
	check(err)

	_, err = fence.UpdateByID(ctx, orders, 8, 17, bson.M{"$set": bson.M{"paid": true}}, fence.Field("billing"))
	fmt.Println("billing:", err)
	_, err = fence.UpdateByID(ctx, orders, 3, 17, bson.M{"$set": bson.M{"sent": true}}, fence.Field("shipping"))
	fmt.Println("shipping:", err)
	_, err = fence.UpdateByID(ctx, orders, 7, 17, bson.M{"$set": bson.M{"paid": false}}, fence.Field("billing"))
	fmt.Println("billing, late:", err)
	// Output:
	// billing: <nil>
	// shipping: <nil>
	// billing, late: fence: token 7 is outdated: 8 has written
}

func ExampleUpsert() {
	db := database()
	defer db.Drop(ctx)
	reports := db.Collection("reports")

	for _, token := range []int64{5, 6, 4} {
		result, err := fence.UpdateByID(ctx, reports, token, "today", bson.M{"$set": bson.M{"total": token}}, fence.Upsert())
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("inserted:", result.UpsertedCount, "found:", result.MatchedCount)
	}
	// Output:
	// inserted: 1 found: 0
	// inserted: 0 found: 1
	// fence: token 4 is outdated: 6 has written
}

func ExampleUpdateOptions() {
	db := database()
	defer db.Drop(ctx)
	carts := db.Collection("carts")
	_, err := carts.InsertOne(ctx, bson.M{"_id": 1, "items": bson.A{bson.M{"price": 5}, bson.M{"price": 50}}})
	check(err)

	expensive := options.UpdateOne().SetArrayFilters([]any{bson.M{"item.price": bson.M{"$gt": 10}}})
	_, err = fence.UpdateByID(ctx, carts, 8, 1, bson.M{"$set": bson.M{"items.$[item].insured": true}}, fence.UpdateOptions(expensive))
	check(err)
	insured, err := carts.CountDocuments(ctx, bson.M{"items.1.insured": true, "items.0.insured": nil})
	check(err)
	fmt.Println("only the expensive one:", insured == 1)
	// Output: only the expensive one: true
}

// All other options are the driver's, such as a comment for the server's log.
func ExampleReplaceOptions() {
	db := database()
	defer db.Drop(ctx)
	reports := db.Collection("reports")
	_, err := reports.InsertOne(ctx, bson.M{"_id": "today"})
	check(err)

	result, err := fence.ReplaceOne(ctx, reports, 8, bson.M{"_id": "today"}, bson.M{"total": 42},
		fence.ReplaceOptions(options.Replace().SetComment("the nightly report")))
	check(err)
	fmt.Println("replaced:", result.MatchedCount)
	// Output: replaced: 1
}

func ExampleInsertOptions() {
	db := database()
	defer db.Drop(ctx)
	result, err := fence.InsertOne(ctx, db.Collection("reports"), 8, bson.M{"_id": "today", "total": 42},
		fence.InsertOptions(options.InsertOne().SetComment("the nightly report")))
	check(err)
	fmt.Println("inserted:", result.InsertedID)
	// Output: inserted: today
}
