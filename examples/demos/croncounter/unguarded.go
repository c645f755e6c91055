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
	"github.com/mongolock/mongolock/examples/demos/internal/stage"
)

// trustTheLock is what a worker does with -unguarded, and what many programs do: when
// its timer fires it tries the lock, and if that is free it runs the job.
func (w *worker) trustTheLock(ctx context.Context, coll *mongo.Collection) error {
	locks, err := mongolock.New(coll, mongolock.WithOwner(w.name), mongolock.TTL(w.ttl()), mongolock.WithoutIndex())
	if err != nil {
		return err
	}
	defer locks.Close()
	for {
		seen, err := locks.Inspect(ctx, key)
		if err != nil {
			return err
		}
		next := max(w.tickAt(seen.Now)+1, w.First)
		if next > w.Last {
			return nil
		}
		offset := w.Period/20 + rand.N(w.Period*17/20)
		if err := stage.Sleep(ctx, w.begin(next).Add(offset).Sub(seen.Now)); err != nil {
			return err
		}
		if err := w.try(ctx, locks, next, w.begin(next).Add(offset)); err != nil {
			fmt.Printf("%*s  fails: %v\n", column, w.name, err)
		}
	}
}

func (w *worker) try(ctx context.Context, locks *mongolock.Client, tick int64, now time.Time) error {
	lease, err := locks.TryAcquire(ctx, key)
	var held *mongolock.HeldError
	if errors.As(err, &held) {
		w.say(tick, now, "skips it: %v", held)
		return nil
	}
	if err != nil {
		return err
	}
	defer lease.Release()
	w.say(tick, now, "runs it")
	return w.count(lease.Context(ctx), lease.Token(), tick, bson.M{"_id": key})
}
