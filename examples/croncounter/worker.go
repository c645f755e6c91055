package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/examples/internal/stage"
	"github.com/mongolock/mongolock/fence"
)

const key = "visits" // of the lock, and the _id of the counter

// A counter is the document that the job changes.
type counter struct {
	ID   string `bson:"_id"`
	N    int64  `bson:"n"`
	Tick int64  `bson:"tick"` // the last one that was counted
	By   string `bson:"by"`
}

// A worker is one of several processes that all have the same job to do.
type worker struct {
	order
	name     string
	locks    *mongolock.Client
	counters *mongo.Collection
}

func work(ctx context.Context, name string, o order) error {
	db, err := stage.Connect(o.URI, o.Database)
	if err != nil {
		return err
	}
	defer db.Client().Disconnect(context.WithoutCancel(ctx))
	locks, err := mongolock.New(db.Collection("locks"), mongolock.WithOwner(name), mongolock.TTL(o.ttl()),
		mongolock.WithoutIndex()) // nothing to tidy up in a database that is dropped in a minute
	if err != nil {
		return err
	}
	defer locks.Close()
	w := &worker{order: o, name: name, locks: locks, counters: db.Collection("counters")}
	return w.run(ctx)
}

// run is the worker's timer. It goes off once in every period, anywhere in its
// first 90 %: as if this host's clock were wrong by so much.
func (w *worker) run(ctx context.Context) error {
	for {
		seen, err := w.locks.Inspect(ctx, key)
		if err != nil {
			return err
		}
		next := max(w.tickAt(seen.Now)+1, w.First)
		offset := w.Period/20 + rand.N(w.Period*17/20)
		if err := stage.Sleep(ctx, w.begin(next).Add(offset).Sub(seen.Now)); err != nil {
			return err
		}
		counted, err := w.fire(ctx)
		if err != nil {
			fmt.Printf("%*s  fails, and leaves it to the next: %v\n", column, w.name, err)
		}
		if counted >= w.Last {
			return nil
		}
	}
}

// fire does the job, unless another worker is at it or has done it. It returns the
// last tick that it knows to be counted.
func (w *worker) fire(ctx context.Context) (counted int64, err error) {
	asked := time.Now()
	seen, err := w.locks.Inspect(ctx, key)
	if err != nil {
		return 0, err
	}
	now := seen.Now // by the server's clock: what this host's says plays no part
	tick := min(w.tickAt(now), w.Last)

	lease, err := w.locks.TryAcquire(ctx, key)
	if held, ok := errors.AsType[*mongolock.HeldError](err); ok {
		w.say(tick, now, "skips it: held by %s", held.Holders[0].Owner)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer lease.Release()
	ctx = lease.Context(ctx) // ends when the lease does

	if w.Unguarded {
		w.say(tick, now, "runs it")
		return tick, w.count(ctx, lease.Token(), tick, bson.M{"_id": key})
	}

	// From here on there is one worker at a time. But one whose timer goes off late
	// finds the key free again: that the job was done, only the counter can tell.
	var c counter
	if err := w.counters.FindOne(ctx, bson.M{"_id": key}).Decode(&c); err != nil {
		return 0, err
	}
	if c.Tick >= tick {
		w.say(tick, now, "skips it: already counted by %s", c.By)
	}
	for c.Tick < tick { // by more than one if a worker died at it
		c.Tick++
		w.say(c.Tick, now.Add(time.Since(asked)), "runs it")
		notYet := bson.M{"_id": key, "tick": bson.M{"$lt": c.Tick}}
		if err := w.count(ctx, lease.Token(), c.Tick, notYet); err != nil {
			return 0, err
		}
	}
	return c.Tick, nil
}

// count is the job. The token keeps out a worker that was paused for longer than
// its lease lasts (see examples/guarded), the filter one that comes twice.
func (w *worker) count(ctx context.Context, token, tick int64, filter bson.M) error {
	if err := stage.Sleep(ctx, w.job()); err != nil { // hard work
		return err
	}
	_, err := fence.UpdateOne(ctx, w.counters, token, filter, bson.M{
		"$inc": bson.M{"n": 1},
		"$set": bson.M{"tick": tick, "by": w.name},
	})
	return err
}

// say prints which tick, how long after its beginning, who, and what.
func (w *worker) say(tick int64, now time.Time, format string, args ...any) {
	at := now.Sub(w.begin(tick)).Seconds()
	fmt.Printf("tick %2d  %+.2f s  %s  %s\n", tick-w.First+1, at, w.name, fmt.Sprintf(format, args...))
}

const column = 26 // where the workers' names end
