// Command partitions sends messages in order, each customer's by one process; start as many as you like.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
)

// A message is inserted in the transaction that makes the change it reports, with state new and a
// partition, the customer's hash modulo 64: so one process sends all that the customer gets.
type message struct {
	ID             bson.ObjectID `bson:"_id"`
	Customer, Text string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")))
	check(err)
	messages := conn.Database("shop").Collection("messages") // with an index of state, partition and _id
	locks, err := mongolock.New(conn.Database("mongolock").Collection("locks"))
	check(err)
	check(assign.Run(ctx, locks, "messages", 64, func(ctx context.Context, p assign.Partition) error {
		for { // the driver's calls fail when ctx ends: this process stops, or the partition goes to another one
			var m message
			err := messages.FindOne(ctx, bson.M{"state": "new", "partition": p.ID}, options.FindOne().SetSort(bson.M{"_id": 1})).Decode(&m)
			if err == nil { // the next one is not sent before: a message may come twice, and never too early
				fmt.Printf("to %s: %s\n", m.Customer, m.Text)
				_, err = messages.UpdateByID(ctx, m.ID, bson.M{"$set": bson.M{"state": "sent"}})
			} else {
				<-time.After(100 * time.Millisecond)
			}
			if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
				return err // Run calls this function again after a pause
			}
		}
	}))
	locks.Close()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
