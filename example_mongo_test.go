package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// The locks live in a collection of their own. Every process opens the same one.
func ExampleNew() {
	ctx := context.Background()
	db, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Disconnect(ctx)

	client, err := mongolock.New(db.Database("mongolock").Collection("locks"), mongolock.WithOwner("billing on host-a"))
	check(err)
	defer client.Close() // before the connection
	fmt.Println("ready, and nothing is sent yet")
	// Output: ready, and nothing is sent yet
}

// A process without the right to create indexes leaves that to its deployment.
func ExampleWithoutIndex() {
	ctx := context.Background()
	db, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Disconnect(ctx)

	client, err := mongolock.New(db.Database("mongolock").Collection("locks"), mongolock.WithoutIndex())
	check(err)
	defer client.Close()
	fmt.Println("ready, and will make no index")
	// Output: ready, and will make no index
}

// EnsureIndex is for a deployment script, which needs to know that the index exists.
func ExampleClient_EnsureIndex() {
	client := connect(memstore.New())
	defer client.Close()

	err := client.EnsureIndex(context.Background())
	if errors.Is(err, errors.ErrUnsupported) {
		fmt.Println("this store needs none")
	} else if err != nil {
		log.Fatal(err)
	}
	// Output: this store needs none
}
