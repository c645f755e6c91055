// Command paths replaces a folder while nobody else reads or writes in it.
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

	"github.com/mongolock/mongolock/pathlock"
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
	storage, err := pathlock.OnMongo(conn.Database("mongolock").Collection("paths"))
	if err != nil {
		return err
	}
	files, err := pathlock.New(storage, "files")
	if err != nil {
		return err
	}
	defer files.Close()

	// A reader of one file asks for pathlock.Request{Path: file, Mode: pathlock.Shared}.
	folder := pathlock.Request{Path: "site/images"} // exclusive, with everything below
	hold, err := files.TryHold(ctx, folder)
	var busy *pathlock.ConflictError
	if errors.As(err, &busy) {
		fmt.Println("waiting:", err)
		hold, err = files.Hold(ctx, folder)
	}
	if err != nil {
		return err
	}
	defer hold.Release()
	return replace(hold.Context(ctx)) // this context ends when the lock does
}

func replace(ctx context.Context) error {
	fmt.Println("replacing the images")
	return ctx.Err()
}
