// Command outbox sends the messages of a collection to a webhook; start as many as you like.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/doclock"
)

type message struct{ Text, State string } // inserted, as new, in the transaction of the change that it reports

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	http.DefaultClient.Timeout = 30 * time.Second // or a webhook that never answers keeps its message for ever
	conn, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")))
	check(err)
	outbox, err := doclock.New[message](conn.Database("shop").Collection("outbox"), doclock.MaxAttempts(20))
	check(err)
	unsent, oldest := bson.D{{Key: "state", Value: "new"}}, bson.D{{Key: "_id", Value: 1}}
	check(outbox.EnsureClaimIndex(ctx, unsent, oldest))
	check(outbox.Work(ctx, 4, unsent, oldest, send)) // until ctx ends
	outbox.Close()
	conn.Disconnect(context.Background())
}

// send may repeat a message, which its ID tells. After an error Work puts it back, and aside after 20 attempts.
func send(ctx context.Context, msg *doclock.Claimed[message]) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("WEBHOOK"), strings.NewReader(msg.Value.Text))
	check(err)
	r.Header.Set("Idempotency-Key", msg.Lease().Key())
	answer, err := http.DefaultClient.Do(r)
	if err == nil {
		defer answer.Body.Close()
		msg.Value.State = "sent" // saved when send returns
		if answer.StatusCode >= 300 {
			err = fmt.Errorf("the webhook answers %s", answer.Status)
		}
	}
	return err
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
