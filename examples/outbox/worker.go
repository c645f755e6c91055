package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/examples/internal/stage"
)

// A message is written to the outbox together with the change that it reports, and has
// to be sent to a receiver outside this database.
type message struct {
	ID      int    `bson:"_id"`
	Text    string `bson:"text"`
	State   string `bson:"state"`
	Relayed string `bson:"relayed,omitempty"` // the worker
}

var (
	unsent  = bson.D{{Key: "state", Value: "new"}}
	inOrder = bson.D{{Key: "_id", Value: 1}}
)

// A delivery is what the receiver gets. Here the receiver is a collection; it may be
// anything that cannot take part in a transaction with the outbox.
type delivery struct {
	Message int    `bson:"message"`
	By      string `bson:"by"`
	Again   bool   `bson:"again"` // it may have been delivered before
}

// A worker is one of several processes that relay the messages.
type worker struct {
	order
	name     string
	outbox   *doclock.Locks[message]
	receiver *mongo.Collection
}

func work(ctx context.Context, name string, o order) error {
	db, leave, err := o.Open()
	if err != nil {
		return err
	}
	defer leave()
	outbox, err := doclock.New[message](db.Collection("outbox"),
		doclock.With(mongolock.WithOwner(name), mongolock.TTL(o.TTL)))
	if err != nil {
		return err
	}
	defer outbox.Close()
	w := &worker{order: o, name: name, outbox: outbox, receiver: db.Collection("deliveries")}
	return w.run(ctx)
}

// run relays messages until none is left. A slow database, or one that is away for a
// moment, does not end it: a claim that was not answered is cleaned up.
func (w *worker) run(ctx context.Context) error {
	for failures := 0; ; {
		waiting, cancel := context.WithTimeout(ctx, 3*w.TTL)
		msg, err := w.outbox.Claim(waiting, unsent, inOrder) // waits for work
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			msg, err = w.outbox.TryClaim(ctx, unsent, inOrder) // was there none, or was the database away?
		}
		if errors.Is(err, doclock.ErrNoWork) {
			return nil // no message for longer than a dead worker's lease lasts: none is left
		}
		if err != nil {
			if failures++; failures == 5 || ctx.Err() != nil {
				return err
			}
			fmt.Printf("%s  claims again: %v\n", w.name, err)
			continue
		}
		failures = 0
		if err := w.relay(ctx, msg); err != nil {
			fmt.Printf("%s  fails to relay message %d, and leaves it to another: %v\n", w.name, msg.Value.ID, err)
		}
	}
}

// relay delivers a message and marks it. A worker can die between the two. The next
// worker cannot know whether the message was delivered, so it tells the receiver that
// this may be a repetition. Between two systems no more than that can be promised.
func (w *worker) relay(ctx context.Context, msg *doclock.Claimed[message]) error {
	defer msg.Release() // has no effect after Complete
	ctx = msg.Lease().Context(ctx)

	again := msg.Attempts() > 1
	if again {
		fmt.Printf("%s  relays message %d again: attempt %d\n", w.name, msg.Value.ID, msg.Attempts())
	}
	if err := stage.Sleep(ctx, w.Job); err != nil { // the way to the receiver
		return err
	}
	if _, err := w.receiver.InsertOne(ctx, delivery{msg.Value.ID, w.name, again}); err != nil {
		return err
	}
	if err := stage.Sleep(ctx, w.Job); err != nil { // and the way back
		return err
	}
	msg.Value.State, msg.Value.Relayed = "sent", w.name
	return msg.Complete(context.WithoutCancel(ctx))
}
