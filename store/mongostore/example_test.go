package mongostore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
)

// locks is a collection of a database that is not there.
func locks() *mongo.Collection {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	if err != nil {
		log.Fatal(err)
	}
	return conn.Database("app").Collection("locks")
}

// A counting store counts the claims that go to the database.
type counting struct {
	store.Store
	claims int
}

func (c *counting) Unwrap() store.Store { return c.Store }

func (c *counting) Acquire(ctx context.Context, claim store.Claim) (store.Grant, error) {
	c.claims++
	return c.Store.Acquire(ctx, claim)
}

// A store of its own can be wrapped; mongolock.New opens one for most programs.
func ExampleNew() {
	inner, err := mongostore.New(locks())
	if err != nil {
		log.Fatal(err)
	}
	counted := &counting{Store: inner}
	client, err := mongolock.NewWithStore(counted)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println("claims sent:", counted.claims)
	// Output: claims sent: 0
}

// Notices of your own travel with the locks' wake-ups; here to a database that is not there.
func ExampleFeedOn() {
	feed, err := mongostore.FeedOn(locks())
	fmt.Println(err)

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err = feed.Notify(ctx, store.Notice{Topic: "prices", Key: "EUR", Kind: "changed"})
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// true
}
