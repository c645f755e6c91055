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

// A message stands in the outbox, written there together with what it is about, and
// is to be sent to somebody who knows nothing of this database.
type message struct {
	ID      int    `bson:"_id"`
	Text    string `bson:"text"`
	State   string `bson:"state"`
	Relayed string `bson:"relayed,omitempty"` // by whom
}

var (
	unsent  = bson.D{{Key: "state", Value: "new"}}
	inOrder = bson.D{{Key: "_id", Value: 1}}
)

// A delivery is what the receiver sees of a message. Here it is a collection; it may
// be anything that cannot take part in a transaction with the outbox.
type delivery struct {
	Message int    `bson:"message"`
	By      string `bson:"by"`
	Again   bool   `bson:"again"` // somebody may have delivered it before
}

// A worker is one of several processes that relay what is in the outbox.
type worker struct {
	order
	name     string
	outbox   *doclock.Locks[message]
	receiver *mongo.Collection
}

func work(ctx context.Context, name string, o order) error {
	db, err := stage.Connect(o.URI, o.Database)
	if err != nil {
		return err
	}
	defer db.Client().Disconnect(context.WithoutCancel(ctx))
	outbox, err := doclock.New[message](db.Collection("outbox"),
		doclock.With(mongolock.WithOwner(name), mongolock.TTL(o.TTL)))
	if err != nil {
		return err
	}
	defer outbox.Close()
	w := &worker{order: o, name: name, outbox: outbox, receiver: db.Collection("deliveries")}
	return w.run(ctx)
}

// run relays until all there is to relay is done. That the database is slow, or away
// for a moment, is no reason to end: a claim that it did not answer is cleaned up.
func (w *worker) run(ctx context.Context) error {
	for failures := 0; ; {
		waiting, cancel := context.WithTimeout(ctx, 3*w.TTL)
		msg, err := w.outbox.Claim(waiting, unsent, inOrder) // waits for work
		cancel()
		if errors.Is(err, doclock.ErrNoWork) && ctx.Err() == nil {
			return nil // for longer than a dead one's lease: there is none left
		}
		if err != nil {
			if failures++; failures == 5 || ctx.Err() != nil {
				return err
			}
			fmt.Printf("%s  asks again: %v\n", w.name, err)
			continue
		}
		failures = 0
		if err := w.relay(ctx, msg); err != nil {
			fmt.Printf("%s  fails with message %d, and leaves it to the next: %v\n", w.name, msg.Value.ID, err)
		}
	}
}

// relay delivers a message and marks it. Between the two a worker can die, and then
// the next one cannot know whether it was delivered: so it says that this may be the
// second time. More than that nobody can promise who talks to two systems.
func (w *worker) relay(ctx context.Context, msg *doclock.Claimed[message]) error {
	defer msg.Release() // unless Complete has
	ctx = msg.Lease().Context(ctx)

	again := msg.Attempts() > 1
	if again {
		fmt.Printf("%s  relays message %d again: attempt %d\n", w.name, msg.Value.ID, msg.Attempts())
	}
	if err := stage.Sleep(ctx, w.Job); err != nil { // the network
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
