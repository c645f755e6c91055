package once_test

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

	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/once"
)

// The examples run on the server of the tests; see TestMain.
var ctx = context.Background()

var connect = sync.OnceValues(func() (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")).SetServerSelectionTimeout(10 * time.Second))
})

// anyDatabase returns an empty one, in place of the application's.
func anyDatabase() *mongo.Database {
	client, err := connect()
	check(err)
	return client.Database("once_" + rand.Text()[:8])
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Every pod does the same when it starts.
func Example() {
	db := anyDatabase()
	defer db.Drop(ctx)
	var pods sync.WaitGroup
	for range 3 {
		pods.Go(func() {
			err := once.Do(ctx, db.Collection("once"), "add-currency", func(ctx context.Context, _ once.Run) error {
				fmt.Println("once for all three pods")
				_, err := db.Collection("orders").UpdateMany(ctx, bson.M{"currency": nil}, bson.M{"$set": bson.M{"currency": "EUR"}})
				return err
			})
			check(err) // only now may the pod go on
		})
	}
	pods.Wait()
	// Output: once for all three pods
}

func ExampleDo() {
	db := anyDatabase()
	defer db.Drop(ctx)
	attempts := 0
	migrate := func(context.Context, once.Run) error {
		if attempts++; attempts == 1 {
			return errors.New("disk full")
		}
		return nil
	}
	for range 3 {
		fmt.Println(once.Do(ctx, db.Collection("once"), "add-currency", migrate), attempts)
	}
	// Output:
	// disk full 1
	// <nil> 2
	// <nil> 2
}

// Fenced work is not done twice, whichever process is paused.
func ExampleRun_Token() {
	db := anyDatabase()
	defer db.Drop(ctx)
	err := once.Do(ctx, db.Collection("once"), "first-settings", func(ctx context.Context, run once.Run) error {
		_, err := fence.UpdateByID(ctx, db.Collection("settings"), run.Token(), "main",
			bson.M{"$set": bson.M{"currency": "EUR"}}, fence.Upsert())
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleContent() {
	db := anyDatabase()
	defer db.Drop(ctx)
	run := func(text string) error {
		return once.Do(ctx, db.Collection("once"), "0001", func(context.Context, once.Run) error { return nil }, once.Content([]byte(text)))
	}
	fmt.Println(run("create index"))
	fmt.Println(run("create index"))
	err := run("drop index")
	var changed *once.ChangedError
	fmt.Println(errors.Is(err, once.ErrChanged), errors.As(err, &changed))
	// Output:
	// <nil>
	// <nil>
	// true true
}

func ExampleLook() {
	db := anyDatabase()
	defer db.Drop(ctx)
	coll := db.Collection("once")
	_ = once.Do(ctx, coll, "import", func(context.Context, once.Run) error { return errors.New("disk full") })
	check(once.Do(ctx, coll, "import", func(context.Context, once.Run) error { return nil }))
	r, err := once.Look(ctx, coll, "import")
	check(err)
	for _, run := range r.Past {
		fmt.Printf("%d %s %q\n", run.Number, run.Outcome, run.Error)
	}
	fmt.Println("done:", r.Done)
	// Output:
	// 1 failed "disk full"
	// 2 succeeded ""
	// done: true
}
