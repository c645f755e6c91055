package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/doclock"
)

const updateTurns = 400

// An account is a document that is changed.
type account struct {
	ID      string `bson:"_id"`
	Balance int    `bson:"balance"`
	Version int    `bson:"version,omitempty"`
}

// documentUpdates measures what a change of one document costs under doclock's Update, beside
// a lock that waits for a majority itself, and a compare-and-swap on a version by hand, which
// excludes no other and has to begin again when it meets another.
func documentUpdates(ctx context.Context, l *lab) (figures []figure, err error) {
	coll := l.driver.Database("bench_updates").Collection("accounts")
	defer func() { err = errors.Join(err, coll.Database().Drop(ctx)) }()
	for i := range 2 {
		if _, err := coll.InsertOne(ctx, account{ID: strconv.Itoa(i)}); err != nil {
			return nil, err
		}
	}
	locks, err := doclock.New[account](coll, doclock.With(quiet))
	if err != nil {
		return nil, err
	}
	defer locks.Close() //nolint:errcheck // what is left runs out
	hand := handOn(coll)
	ways := []func() error{
		func() error {
			return locks.Update(ctx, doclock.ID("0"), func(a *account) error { a.Balance++; return nil })
		},
		func() error {
			doc, err := locks.Acquire(ctx, doclock.ID("0"))
			if err != nil {
				return err
			}
			doc.Value.Balance++
			return doc.SaveAndRelease(ctx)
		},
		func() error { return hand.swap(ctx, "1") },
	}
	took := make([][]float64, len(ways))
	for turn := range updateTurns {
		for i, way := range ways {
			start := time.Now()
			if err := way(); err != nil {
				return nil, err
			}
			if turn >= updateTurns/10 { // the first warm up
				took[i] = append(took[i], time.Since(start).Seconds())
			}
		}
	}
	update := median(took[0])
	return []figure{
		{"change of a document, `Update`", update / median(took[1]), "%.2f ×", 0, noTarget, fmt.Sprintf("`Acquire`, then `SaveAndRelease`; %.2f ms", 1000*update)},
		{"the same", update / median(took[2]), "%.2f ×", 0, noTarget, "a find and a compare-and-swap on a version by hand, met by nobody"},
	}, nil
}

// swap adds one to an account as one would without a lock.
func (h byHand) swap(ctx context.Context, id string) error {
	var a account
	if err := h.soft.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&a); err != nil {
		return err
	}
	seen := bson.D{{Key: "_id", Value: id}, {Key: "version", Value: a.Version}}
	if a.Version == 0 {
		seen[1].Value = bson.D{{Key: "$exists", Value: false}}
	}
	err := h.durable.FindOneAndUpdate(ctx, seen, bson.D{{Key: "$set", Value: bson.D{
		{Key: "balance", Value: a.Balance + 1}, {Key: "version", Value: a.Version + 1},
	}}}, options.FindOneAndUpdate().SetReturnDocument(options.After)).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return errors.New("somebody else changed the account")
	}
	return err
}
