// Command permits renders a video for a tenant; each has at most three at a time, on all hosts together.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
)

func main() {
	uri := cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")
	if err := run(context.Background(), uri, strings.Join(os.Args[1:], " ")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, uri, tenant string) error {
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

	render := func(ctx context.Context, _ *mongolock.Lease) error {
		fmt.Println("rendering")
		return ctx.Err() // your work; ctx ends when the lease does
	}
	err = mongolock.Do(ctx, locks, "render/"+tenant, render, mongolock.OneOf(3), mongolock.MaxWait(10*time.Minute))
	if errors.Is(err, mongolock.ErrHeld) {
		return errors.New("no permit within ten minutes")
	}
	return err
}
