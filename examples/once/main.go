// Command once prepares a database when it starts, once, on however many hosts that happens at a time.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/once"
)

func main() {
	uri := cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")
	if err := run(context.Background(), uri); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, uri string) error {
	conn, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer conn.Disconnect(ctx)
	orders := conn.Database("shop").Collection("orders")

	// The other processes wait here until it is done. If the one that runs it dies, another one does.
	err = once.Do(ctx, conn.Database("mongolock").Collection("once"), "2026-11 lower-case state", func(ctx context.Context, run once.Run) error {
		fmt.Println("migrating, run", run.Number()) // from 2 on, an earlier run may have done a part
		_, err := orders.UpdateMany(ctx, bson.M{"state": "PAID"}, bson.M{"$set": bson.M{"state": "paid"}})
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return nil
}
