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
