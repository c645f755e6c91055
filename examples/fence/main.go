// Command fence writes a total that no paused, outdated process can overwrite.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/fence"
)

func main() {
	uri := cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")
	err := run(context.Background(), uri)
	if errors.Is(err, fence.ErrFenced) {
		fmt.Println("refused: a newer holder has written")
		os.Exit(1)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, uri string) error {
	conn, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer conn.Disconnect(ctx)
	totals := conn.Database("shop").Collection("totals")
	locks, err := mongolock.New(conn.Database("mongolock").Collection("locks"))
	if err != nil {
		return err
	}
	defer locks.Close()

	return mongolock.Do(ctx, locks, "total", func(ctx context.Context, lease *mongolock.Lease) error {
		orders, err := conn.Database("shop").Collection("orders").CountDocuments(ctx, bson.D{})
		if err != nil {
			return err
		}
		// The process may be paused right here for longer than its lease lasts.
		change := bson.M{"$set": bson.M{"orders": orders}}
		if _, err := fence.UpdateByID(ctx, totals, lease.Token(), "today", change, fence.Upsert()); err != nil {
			return err
		}
		fmt.Println("orders today:", orders)
		return nil
	})
}
