package doclock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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

func ExampleLocks_TryClaim() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	defer msg.Release() // puts it back unless it was completed
	_, err = outbox.TryClaim(ctx, fresh, oldest)
	fmt.Println("got", msg.Value.ID, "and no more:", errors.Is(err, doclock.ErrNoWork))
	// Output: got 1 and no more: true
}

// A deployment creates the index once. Claims work without it, but read more.
func ExampleLocks_EnsureClaimIndex() {
	db := database()
	defer db.Drop(ctx)
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	check(outbox.EnsureClaimIndex(ctx, fresh, oldest))
	check(outbox.EnsureClaimIndex(ctx, fresh, oldest)) // it exists: nothing happens
	indexes, err := db.Collection("outbox").Indexes().ListSpecifications(ctx)
	check(err)
	fmt.Println(indexes[1].Name)
	// Output: doclock_state_lock.done__id_lock.readyAt_lock.expireAt
}

// A producer needs no Locks to wake the workers that wait.
func ExampleAnnounce() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	if err := doclock.Announce(ctx, db.Collection("outbox")); err != nil {
		fmt.Println("the workers will find it by themselves:", err)
	}
	fmt.Println("announced")
	// Output: announced
}

func ExampleLocks_Announce() {
	db := database()
	defer db.Drop(ctx)
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	insert(db.Collection("outbox"), Message{1, "new"})
	check(outbox.Announce(ctx)) // after the insert, or after its transaction's commit
	fmt.Println("announced")
	// Output: announced
}

// A message that fails again and again is put aside.
func ExampleClaimed_Attempts() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	for {
		msg, err := outbox.TryClaim(ctx, fresh, oldest)
		if errors.Is(err, doclock.ErrNoWork) {
			break
		}
		check(err)
		if msg.Attempts() == 3 {
			msg.Value.State = "failed"
			check(msg.Complete(ctx))
			fmt.Println("put aside at attempt", msg.Attempts())
			continue
		}
		check(msg.Requeue(ctx, 0))
	}
	// Output: put aside at attempt 3
}

func ExampleClaimed_Complete() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	msg.Value.State = "sent"
	check(msg.Complete(ctx))
	sent, err := db.Collection("outbox").CountDocuments(ctx, bson.M{"state": "sent", "lock.done": true})
	check(err)
	fmt.Println("sent and done:", sent)
	// Output: sent and done: 1
}

func ExampleClaimed_Requeue() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	fmt.Println("attempt", msg.Attempts())
	check(msg.Requeue(ctx, time.Minute)) // the receiver is away: try again in a minute

	_, err = outbox.TryClaim(ctx, fresh, oldest)
	fmt.Println("nothing to do:", errors.Is(err, doclock.ErrNoWork))
	// Output:
	// attempt 1
	// nothing to do: true
}

func ExampleClaimed_Remove() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()

	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	check(msg.Remove(ctx))
	left, err := db.Collection("outbox").CountDocuments(ctx, bson.D{})
	check(err)
	fmt.Println("left:", left)
	// Output: left: 0
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

func ExampleLocks_Dead() {
	db := database()
	defer db.Drop(ctx)
	outbox, err := doclock.New[Message](db.Collection("outbox"), doclock.MaxAttempts(1))
	check(err)
	defer outbox.Close()

	none := true
	for dead, err := range outbox.Dead(ctx, fresh) {
		check(err)
		fmt.Println(dead.ID, dead.Attempts, dead.At)
		none = false
	}
	fmt.Println("nothing was set aside:", none)
	// Output: nothing was set aside: true
}

// A document that was completed by mistake is claimed again.
func ExampleLocks_Reopen() {
	db := database()
	defer db.Drop(ctx)
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	defer outbox.Close()
	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	check(msg.Complete(ctx))

	n, err := outbox.Reopen(ctx, fresh)
	check(err)
	msg, err = outbox.Claim(ctx, fresh, oldest)
	check(err)
	defer msg.Release()
	fmt.Println("reopened:", n, "attempt:", msg.Attempts())
	// Output: reopened: 1 attempt: 1
}
