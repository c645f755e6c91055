package feed

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

type state int

const (
	missing state = iota
	capped
	uncapped
)

func (f *Feed) look(ctx context.Context) (state, error) {
	f.trusted.Store(0)
	specs, err := f.coll.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: f.coll.Name()}})
	if err != nil || len(specs) == 0 {
		return missing, err
	}
	if is, _ := specs[0].Options.Lookup("capped").BooleanOK(); !is {
		return uncapped, nil
	}
	f.trusted.Store(int64(f.base.Clock.Now().Add(trust)))
	f.failures.Store(0)
	return capped, nil
}

var errTaken = errors.New("the collection of wake-ups was made, or dropped, by others at the same time")

// prepare makes sure that the collection is there, capped and not empty.
func (f *Feed) prepare(ctx context.Context) error {
	state, err := f.look(ctx)
	if err == nil && state == uncapped {
		err = f.replace(ctx)
		state = missing
	}
	if err == nil && state == missing {
		err = f.create(ctx)
	}
	if err != nil {
		return err
	}
	err = f.coll.FindOne(ctx, bson.D{}).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		_, err = f.coll.InsertOne(ctx, document(store.Notice{Kind: kindSeed}))
	}
	return err
}

// create makes the collection. Another client may have been quicker, with a capped one, or with
// a notice whose insert made it uncapped. Only if it turns out uncapped every time is it
// certain that the server has no capped collections.
func (f *Feed) create(ctx context.Context) error {
	failed := f.coll.Database().CreateCollection(ctx, f.coll.Name(),
		options.CreateCollection().SetCapped(true).SetSizeInBytes(size))
	state, err := f.look(ctx)
	switch {
	case err != nil:
		return err
	case state == capped:
		return nil
	case state == missing && failed != nil:
		return failed
	case state == missing || f.failures.Add(1) < mostMade:
		return errTaken
	}
	return fmt.Errorf("the collection %s is not capped: %w", f.coll.Name(), errors.ErrUnsupported)
}

// replace drops an uncapped collection, which an insert made after the capped one was dropped,
// if all documents in it are ours.
func (f *Feed) replace(ctx context.Context) error {
	err := f.coll.FindOne(ctx, bson.D{{Key: fieldVersion, Value: bson.D{{Key: "$ne", Value: shape}}}}).Err()
	switch {
	case err == nil:
		return fmt.Errorf("the collection %s is not capped and has other documents than wake-ups: %w", f.coll.Name(), errors.ErrUnsupported)
	case !errors.Is(err, mongo.ErrNoDocuments):
		return err
	}
	if state, err := f.look(ctx); err != nil || state != uncapped {
		return err // another client was quicker
	}
	return f.coll.Drop(ctx)
}

// noFeed marks an error that will not change: the server refuses a capped collection or a
// tailable cursor, or a right is missing. Waiters then poll.
func noFeed(err error) error {
	switch server.ClassOf(err) {
	case server.Refused, server.NoCommand:
		return fmt.Errorf("%w (%w)", err, errors.ErrUnsupported)
	}
	return err
}
