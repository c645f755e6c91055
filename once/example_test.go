package once_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
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

func ExampleRun_Number() {
	db := anyDatabase()
	defer db.Drop(ctx)
	for range 2 {
		_ = once.Do(ctx, db.Collection("once"), "import", func(_ context.Context, run once.Run) error {
			if run.Number() > 1 {
				fmt.Println("an earlier run may have imported a part")
			}
			return errors.New("disk full")
		})
	}
	// Output: an earlier run may have imported a part
}

// A run that hangs does not keep all pods waiting for ever.
func ExampleRun_Lease() {
	db := anyDatabase()
	defer db.Drop(ctx)
	err := once.Do(ctx, db.Collection("once"), "import", func(_ context.Context, run once.Run) error {
		for range 3 {
			run.Lease().Progress() // after each part
		}
		return run.Lease().Err()
	}, once.With(mongolock.MaxStall(time.Minute)))
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

func ExampleWith() {
	db := anyDatabase()
	defer db.Drop(ctx)
	nothing := func(context.Context, once.Run) error { return nil }
	fmt.Println(once.Do(ctx, db.Collection("once"), "import", nothing, once.With(mongolock.TTL(time.Minute), mongolock.Note("version 7"))))
	fmt.Println(once.Do(ctx, db.Collection("once"), "import", nothing, once.With(mongolock.Shared())))
	// Output:
	// <nil>
	// once: With(Shared()): several processes would run the function at the same time
}

func ExampleWithOwner() {
	db := anyDatabase()
	defer db.Drop(ctx)
	coll := db.Collection("once")
	check(once.Do(ctx, coll, "import", func(context.Context, once.Run) error { return nil }, once.WithOwner("billing-7")))
	r, err := once.Look(ctx, coll, "import")
	check(err)
	fmt.Println(r.Past[0].Owner)
	// Output: billing-7
}

// A log of one's own takes the place of slog.Default().
func ExampleWithLogger() {
	db := anyDatabase()
	defer db.Drop(ctx)
	logger := slog.New(slog.DiscardHandler)
	fmt.Println(once.Do(ctx, db.Collection("once"), "import", func(context.Context, once.Run) error { return nil }, once.WithLogger(logger)))
	// Output: <nil>
}

// An observer sees the run by its name.
func ExampleWithObserver() {
	db := anyDatabase()
	defer db.Drop(ctx)
	seen := &runs{began: make(chan string, 1)}
	check(once.Do(ctx, db.Collection("once"), "import", func(context.Context, once.Run) error { return nil }, once.WithObserver(seen)))
	fmt.Println(<-seen.began)
	// Output: run of import
}

type runs struct{ began chan string }

func (r *runs) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	if of.Op == mongolock.OpRun {
		r.began <- "run of " + of.Key
	}
	return ctx, func(mongolock.Outcome) {}
}

// The function is told four minutes before another process could run it.
func ExampleWithMargin() {
	db := anyDatabase()
	defer db.Drop(ctx)
	check(once.Do(ctx, db.Collection("once"), "import", func(_ context.Context, run once.Run) error {
		fmt.Println("trusted for", run.Lease().Remaining().Round(time.Minute))
		return nil
	}, once.With(mongolock.TTL(10*time.Minute)), once.WithMargin(4*time.Minute)))
	// Output: trusted for 6m0s
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

func ExampleEntry_Took() {
	db := anyDatabase()
	defer db.Drop(ctx)
	coll := db.Collection("once")
	check(once.Do(ctx, coll, "import", func(context.Context, once.Run) error { return nil }))
	r, err := once.Look(ctx, coll, "import")
	check(err)
	fmt.Println(r.Past[0].Took() < time.Minute)
	// Output: true
}

func ExampleList() {
	db := anyDatabase()
	defer db.Drop(ctx)
	coll := db.Collection("once")
	for _, name := range []string{"0001", "0002"} {
		check(once.Do(ctx, coll, name, func(context.Context, once.Run) error { return nil }))
	}
	for r, err := range once.List(ctx, coll) {
		check(err)
		fmt.Println(r.Name, r.Done)
	}
	// Output:
	// 0001 true
	// 0002 true
}

func ExampleReset() {
	db := anyDatabase()
	defer db.Drop(ctx)
	coll := db.Collection("once")
	work := func(context.Context, once.Run) error {
		fmt.Println("works")
		return nil
	}
	check(once.Do(ctx, coll, "import", work))
	check(once.Reset(ctx, coll, "import", "the data was lost"))
	check(once.Do(ctx, coll, "import", work))
	// Output:
	// works
	// works
}

func ExampleCheckName() {
	fmt.Println(once.CheckName("add-currency"))
	fmt.Println(once.CheckName(""))
	// Output:
	// <nil>
	// once: the name is empty
}
