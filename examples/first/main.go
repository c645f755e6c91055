// A program that changes item 17 while no other process does.
package main

import (
	"context"
	"fmt"
	"log"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
)

func main() {
	if err := run(context.Background(), "mongodb://localhost:27017"); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, uri string) error {
	db, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer db.Disconnect(ctx)

	locks, err := mongolock.New(db.Database("mongolock").Collection("locks"))
	if err != nil {
		return err
	}
	defer locks.Close() // before the connection

	return mongolock.Do(ctx, locks, "item-17", func(ctx context.Context, lease *mongolock.Lease) error {
		fmt.Println("nobody else changes item 17 now")
		return ctx.Err() // your work; ctx ends when the lease does
	})
}
