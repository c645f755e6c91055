// Command handoff begins a piece of work under a lock and prints a ticket; started with the ticket,
// it goes on where the first process ended, under the same lock and token.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
)

func main() {
	uri := cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")
	if err := run(context.Background(), uri, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, uri string, args []string) error {
	conn, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer conn.Disconnect(ctx)
	locks, err := mongolock.New(conn.Database("mongolock").Collection("locks"), mongolock.TTL(5*time.Minute))
	if err != nil {
		return err
	}
	defer locks.Close()

	if len(args) == 1 {
		lease, err := locks.Resume(ctx, args[0])
		if err != nil {
			return err // ErrLost: resumed before, or after the TTL
		}
		defer lease.Release()
		fmt.Fprintln(os.Stderr, "finishing the upload, with token", lease.Token())
		return nil
	}
	lease, err := locks.Acquire(ctx, "upload-17")
	if err != nil {
		return err
	}
	defer lease.Release()
	fmt.Fprintln(os.Stderr, "receiving the upload, with token", lease.Token())
	ticket, err := lease.Detach(ctx) // from here on the key stays held for a TTL
	if err != nil {
		return err
	}
	fmt.Println(ticket) // as secret as the lease itself
	return nil
}
