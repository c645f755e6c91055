package main

import (
	"context"
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
	messages *mongo.Collection
	receiver *mongo.Collection
}

func work(ctx context.Context, name string, o order) error {
	db, leave, err := o.Open()
	if err != nil {
		return err
	}
	defer leave()
	outbox, err := doclock.New[message](db.Collection("outbox"),
		doclock.With(mongolock.TTL(o.TTL)), doclock.WithOwner(name))
	if err != nil {
		return err
	}
	defer outbox.Close()
	w := &worker{order: o, name: name, outbox: outbox, messages: db.Collection("outbox"), receiver: db.Collection("deliveries")}
	return w.run(ctx)
}

// run relays messages until none is left. A message that fails is left to a later attempt, which may
// be another worker's.
func (w *worker) run(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer stop()
		w.untilNoneIsLeft(working)
	}()
	return w.outbox.Work(working, 1, unsent, inOrder, func(ctx context.Context, msg *doclock.Claimed[message]) error {
		err := w.relay(ctx, msg)
		if err != nil {
			fmt.Printf("%s  fails to relay message %d, and leaves it to a later attempt: %v\n", w.name, msg.Value.ID, err)
		}
		return err
	})
}

// untilNoneIsLeft returns when the outbox has had no message to send for longer than a dead worker's
// lease lasts.
func (w *worker) untilNoneIsLeft(ctx context.Context) {
	for none := 0; none < 3; none++ {
		if stage.Sleep(ctx, w.TTL) != nil {
			return
		}
		if n, err := w.messages.CountDocuments(ctx, unsent); err != nil || n > 0 {
			none = -1
		}
	}
}

// relay delivers a message and marks it; Work saves the mark. A worker can die between the two. The
// next worker cannot know whether the message was delivered, so it tells the receiver that this may
// be a repetition. Between two systems no more than that can be promised.
func (w *worker) relay(ctx context.Context, msg *doclock.Claimed[message]) error {
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
	return nil
}
