package mongostore_test

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
)

// Notices of your own travel with the locks' wake-ups; here to a database that is not
// there.
func ExampleFeedOn() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Disconnect(context.Background()) }()
	feed, err := mongostore.FeedOn(conn.Database("app").Collection("locks"))
	fmt.Println(err)

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err = feed.Notify(ctx, store.Notice{Topic: "prices", Key: "EUR", Kind: "changed"})
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// true
}
