// Command skip writes a report, unless another process is writing it.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
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
	locks, err := mongolock.New(conn.Database("mongolock").Collection("locks"))
	if err != nil {
		return err
	}
	defer locks.Close()

	lease, err := locks.TryAcquire(ctx, "report", mongolock.Note("the monthly one"))
	var held *mongolock.HeldError
	if errors.As(err, &held) {
		for _, h := range held.Holders {
			fmt.Printf("skipped: %s has it (%s)\n", h.Owner, h.Note)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer lease.Release()
	return write(lease.Context(ctx)) // this context ends when the lease does
}

func write(ctx context.Context) error {
	fmt.Println("writing the report")
	return ctx.Err()
}
