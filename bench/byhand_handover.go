package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// keyByHand is the key that is handed over by hand, and what the other process is told to do it.
const keyByHand = "by hand"

// notices is the collection of wake-ups of hand-overs by hand.
func (h byHand) notices() *mongo.Collection {
	return handOn(h.soft.Database().Collection("notices")).soft
}

func (h byHand) makeNotices(ctx context.Context) error {
	err := h.soft.Database().CreateCollection(ctx, "notices", options.CreateCollection().SetCapped(true).SetSizeInBytes(64<<10))
	if err != nil {
		return err
	}
	_, err = h.notices().InsertOne(ctx, bson.D{{Key: "key", Value: "none yet"}})
	return err
}

// handOver measures hand-overs by hand, in turns with free pairs by hand.
func (h byHand) handOver(ctx context.Context, other *child) (ratio float64, err error) {
	var free, handed []float64
	for i := range 10 + handOverTurns {
		start := time.Now()
		if err := h.pair(ctx, "free"); err != nil {
			return 0, err
		}
		pair := time.Since(start)
		took, err := h.handOverOnce(ctx, other)
		if err != nil {
			return 0, err
		}
		if i >= 10 { // so far was the warm-up
			free, handed = append(free, pair.Seconds()), append(handed, took.Seconds())
		}
	}
	return median(handed) / median(free), nil
}

// handOverOnce hands a key to the other process with the commands of the library: the notice
// goes out beside the delete.
func (h byHand) handOverOnce(ctx context.Context, other *child) (time.Duration, error) {
	held, err := h.lock(ctx, keyByHand)
	if err != nil {
		return 0, err
	}
	if err := other.say(keyByHand); err != nil {
		return 0, err
	}
	if err := other.expect("asking"); err != nil {
		return 0, err
	}
	<-time.After(20*time.Millisecond + rand.N(pollPause))
	released, noticed := time.Now(), make(chan error, 1)
	go func() {
		_, err := h.notices().InsertOne(ctx, bson.D{{Key: "key", Value: keyByHand}})
		noticed <- err
	}()
	if err := held.remove(ctx); err != nil {
		return 0, err
	}
	var granted int64
	if err := errors.Join(<-noticed, other.expect("granted", &granted)); err != nil {
		return 0, err
	}
	return time.Unix(0, granted).Sub(released), other.expect("free")
}

// A handWaiter is the other process: it reads notices with a cursor that stays open.
type handWaiter struct {
	byHand
	cursor *mongo.Cursor
}

// wait takes the key when a notice comes, and gives it back.
func (w *handWaiter) wait(ctx context.Context) (err error) {
	if w.cursor == nil {
		w.cursor, err = w.notices().Find(ctx, bson.D{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(30*time.Second))
		if err != nil || !w.cursor.Next(ctx) { // what was there before
			return errors.Join(err, errors.New("no cursor on the notices"))
		}
	}
	say("asking")
	if !w.cursor.Next(ctx) {
		return errors.Join(w.cursor.Err(), errors.New("the notices have ended"))
	}
	held, err := w.acquire(ctx, keyByHand)
	for mongo.IsDuplicateKeyError(err) { // the notice overtook the delete
		<-time.After(time.Millisecond)
		held, err = w.acquire(ctx, keyByHand)
	}
	if err != nil {
		return err
	}
	say("granted", time.Now().UnixNano())
	if err := held.remove(ctx); err != nil {
		return err
	}
	say("free")
	return nil
}

func (w *handWaiter) close(ctx context.Context) {
	if w.cursor != nil {
		_ = w.cursor.Close(ctx) // the server ends it by itself soon enough
		w.cursor = nil
	}
}
