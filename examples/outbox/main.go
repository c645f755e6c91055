// Outbox relays messages: four processes claim them one by one from a collection,
// deliver each message and mark it. Half-way, a process that has just delivered a message
// and not yet marked it is killed with -9. At the end the example checks that every
// message was delivered, and none twice unless the kill was the reason; such a delivery
// is marked as a possible repetition.
//
// What a worker does is in worker.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/examples/internal/stage"
)

// An order is what every worker is given.
type order struct {
	stage.Place
	TTL time.Duration
	Job time.Duration // how long each way to the receiver takes
}

func main() {
	d := demo{running: stage.Crew{}}
	flag.IntVar(&d.workers, "workers", 4, "how many processes")
	flag.IntVar(&d.messages, "messages", 60, "how many messages")
	flag.DurationVar(&d.TTL, "ttl", time.Second, "for how long a dead worker's message is kept from the others")
	flag.DurationVar(&d.Job, "job", 40*time.Millisecond, "how long a message takes to the receiver, and the answer back")
	flag.BoolVar(&d.unmarked, "unmarked", false, "check as if no message could be delivered twice, and see the check fail")
	stage.Example[order]{Name: "outbox", Check: d.checkFlags, Role: work, Story: d.story}.Main()
}

// A demo is the parent of the workers.
type demo struct {
	order
	workers  int
	messages int
	unmarked bool

	running stage.Crew
}

func (d *demo) checkFlags() error {
	if d.workers < 2 || d.messages < 8 || d.TTL < 500*time.Millisecond || d.Job < time.Millisecond {
		return errors.New("-workers must be at least 2, -messages at least 8, -ttl at least 500ms and -job at least 1ms")
	}
	return nil
}

func (d *demo) story(ctx context.Context, scratch *stage.Scratch) error {
	d.Place = scratch.Place
	db, leave, err := d.Open()
	if err != nil {
		return err
	}
	defer leave()
	fmt.Printf("%d processes relay %d messages. One of them is killed when it has delivered a message and not marked it.\nThe database: %s.\n\n",
		d.workers, d.messages, scratch.Server)
	if err := d.prepare(ctx, db); err != nil {
		return err
	}
	if err := d.runWorkers(ctx, db); err != nil {
		return err
	}
	return d.check(ctx, db)
}

// prepare makes the index and writes the first half of the messages.
func (d *demo) prepare(ctx context.Context, db *mongo.Database) error {
	outbox, err := doclock.New[message](db.Collection("outbox"))
	if err != nil {
		return err
	}
	defer outbox.Close()
	if err := d.write(ctx, db, 0, d.messages/2); err != nil {
		return err
	}
	return outbox.EnsureClaimIndex(ctx, unsent, inOrder)
}

func (d *demo) write(ctx context.Context, db *mongo.Database, from, to int) error {
	var docs []any
	for i := from; i < to; i++ {
		docs = append(docs, message{ID: i, Text: fmt.Sprintf("order %d was paid", i), State: "new"})
	}
	outbox := db.Collection("outbox")
	if _, err := outbox.InsertMany(ctx, docs); err != nil {
		return err
	}
	return doclock.Announce(ctx, outbox) // without it the workers notice within a second
}

func (d *demo) runWorkers(ctx context.Context, db *mongo.Database) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := d.startAndKill(ctx, db)
	if err != nil {
		cancel() // kills them
	}
	return errors.Join(err, d.running.Wait())
}

func (d *demo) startAndKill(ctx context.Context, db *mongo.Database) error {
	for i := range d.workers {
		if err := d.running.Start(ctx, fmt.Sprintf("worker-%d", i+1), d.order); err != nil {
			return err
		}
	}
	victim := delivery{Message: d.messages/4 - 1}
	for killed, n := false, d.workers; !killed; {
		var err error
		if victim, err = d.awaitDelivery(ctx, db, victim.Message); err != nil {
			return err
		}
		if d.running[victim.By] == nil { // killed before
			continue
		}
		if err := d.running.End(victim.By, os.Kill); err != nil {
			return err
		}
		marked, err := db.Collection("outbox").CountDocuments(ctx, bson.M{"_id": victim.Message, "state": "sent"})
		if err != nil {
			return err
		}
		if killed = marked == 0; !killed { // a busy machine: the worker was quicker
			n++
			if err := d.running.Start(ctx, fmt.Sprintf("worker-%d", n), d.order); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%s  is killed with -9 after it has delivered message %d\n", victim.By, victim.Message)
	return d.write(ctx, db, d.messages/2, d.messages)
}

// awaitDelivery waits until a worker has delivered one of the first half of the messages,
// beyond a number, and most likely not yet marked it.
func (d *demo) awaitDelivery(ctx context.Context, db *mongo.Database, beyond int) (v delivery, err error) {
	newest := options.FindOne().SetSort(bson.M{"_id": -1})
	for {
		err := db.Collection("deliveries").FindOne(ctx, bson.M{"message": bson.M{"$gt": beyond}}, newest).Decode(&v)
		if err == nil {
			return v, nil
		}
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return v, err
		}
		if left, err := db.Collection("outbox").CountDocuments(ctx, unsent); err != nil {
			return v, err
		} else if left == 0 {
			return v, errors.New("no worker could be killed between a delivery and its mark: each was quicker")
		}
		if err := stage.Sleep(ctx, time.Millisecond); err != nil {
			return v, err
		}
	}
}

// check counts the deliveries.
func (d *demo) check(ctx context.Context, db *mongo.Database) error {
	cursor, err := db.Collection("deliveries").Find(ctx, bson.D{})
	if err != nil {
		return err
	}
	var all []delivery
	if err := cursor.All(ctx, &all); err != nil {
		return err
	}
	unmarked, marked := map[int]int{}, 0
	for _, one := range all {
		if one.Again && !d.unmarked {
			marked++
			if unmarked[one.Message] == 0 {
				unmarked[one.Message] = 0 // its first delivery, by the second attempt
			}
			continue
		}
		unmarked[one.Message]++
	}
	missing, twice := d.messages-len(unmarked), 0
	for _, n := range unmarked {
		if n > 1 {
			twice++
		}
	}
	left, err := db.Collection("outbox").CountDocuments(ctx, unsent)
	if err != nil {
		return err
	}
	verdict := "correct" // however many are marked: other leases than the killed worker's can be lost
	if missing > 0 || twice > 0 || left > 0 {
		verdict = "wrong"
		err = errors.New("the relay is wrong")
	}
	fmt.Printf("\n%d messages: %d missing, %d twice without a mark, %d marked as possible repetitions, %d left: %s\n",
		d.messages, missing, twice, marked, left, verdict)
	return err
}
