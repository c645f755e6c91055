package doclock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/doclock"
)

// A Message is one of an outbox: it is written together with the change that it reports,
// and sent afterwards.
type Message struct {
	ID    int    `bson:"_id"`
	State string `bson:"state"`
}

var (
	fresh  = bson.D{{Key: "state", Value: "new"}}
	oldest = bson.D{{Key: "_id", Value: 1}}
)

func ExampleLocks_Claim() {
	db := database()
	defer db.Drop(ctx)
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	go insert(db.Collection("outbox"), Message{1, "new"}, Message{2, "new"}) // the producer
	for range 2 {
		msg, err := outbox.Claim(ctx, fresh, oldest) // waits for work
		check(err)
		fmt.Println("sent", msg.Value.ID)
		msg.Value.State = "sent"
		check(msg.Complete(ctx))
	}
	// Output:
	// sent 1
	// sent 2
}

// A monitor asks whether workers keep up, whether or not one is up.
func ExampleLocks_Backlog() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"}, Message{2, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	_, err = outbox.Claim(ctx, fresh, oldest)
	check(err)
	b, err := outbox.Backlog(ctx, fresh, "") // "created" would tell the age of the oldest, too
	check(err)
	fmt.Println(b.Claimable, "wait,", b.Claimed, "is being sent,", b.Dead, "were given up")
	// Output: 1 wait, 1 is being sent, 0 were given up
}

func ExampleLocks_Work() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"}, Message{2, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"), doclock.MaxAttempts(10))
	check(err)
	defer outbox.Close()

	working, stop := context.WithCancel(ctx) // until SIGTERM, say
	err = outbox.Work(working, 1, fresh, oldest, func(ctx context.Context, msg *doclock.Claimed[Message]) error {
		fmt.Println("sent", msg.Value.ID) // an error puts it back, to be repeated later
		msg.Value.State = "sent"          // nil saves this, and completes the document
		if msg.Value.ID == 2 {
			stop()
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// sent 1
	// sent 2
	// <nil>
}

// A message that cannot be sent blocks no worker for ever. An operator sees it, mends what
// was wrong, and lets it be claimed again.
func ExampleMaxAttempts() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"), doclock.MaxAttempts(3), quiet)
	check(err)
	defer outbox.Close()

	for {
		msg, err := outbox.TryClaim(ctx, fresh, oldest)
		if errors.Is(err, doclock.ErrNoWork) {
			break
		}
		check(err)
		fmt.Println("attempt", msg.Attempts(), "failed")
		check(msg.Requeue(ctx, 0))
	}
	for dead, err := range outbox.Dead(ctx, fresh) {
		check(err)
		fmt.Println("message", dead.Value.ID, "was set aside after", dead.Attempts)
	}
	n, err := outbox.Reopen(ctx, doclock.ID(1))
	check(err)
	fmt.Println("reopened:", n)
	// Output:
	// attempt 1 failed
	// attempt 2 failed
	// attempt 3 failed
	// message 1 was set aside after 3
	// reopened: 1
}

// quiet keeps the log of what is set aside out of the examples' output.
var quiet = doclock.WithLogger(slog.New(slog.DiscardHandler))
