package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"time"

	lock "github.com/square/mongo-lock"
	older "go.mongodb.org/mongo-driver/mongo"
	olderoptions "go.mongodb.org/mongo-driver/mongo/options"
	olderconcern "go.mongodb.org/mongo-driver/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock"
)

// startMongo uses the server that is there; each contender has a database of its own.
func startMongo(context.Context) (place, func() error, error) {
	uri := os.Getenv("MONGODB_URI")
	if uri == "" {
		return place{}, nil, errors.New("no MONGODB_URI: `make compare` sets it")
	}
	at := place{uri, "compare_" + rand.Text()}
	return at, func() error {
		driver, err := mongo.Connect(options.Client().ApplyURI(uri))
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return errors.Join(driver.Database(at.Database).Drop(ctx), driver.Disconnect(ctx))
	}, nil
}

func connect(at place, asked *requests) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(at.Address).SetMonitor(asked.ofMongo()))
}

func openMongolock(_ context.Context, at place, asked *requests) (locks, error) {
	driver, err := connect(at, asked)
	if err != nil {
		return locks{}, err
	}
	client, err := mongolock.New(driver.Database(at.Database).Collection("locks"),
		mongolock.WithLogger(slog.New(slog.DiscardHandler)), mongolock.TTL(usualTTL))
	return locks{
		acquire: func(ctx context.Context, key string) (func() error, error) {
			lease, err := client.Acquire(ctx, key)
			if err != nil {
				return nil, err
			}
			return lease.Release, nil
		},
		close: func() error { return errors.Join(client.Close(), driver.Disconnect(context.Background())) },
	}, err
}

var errTaken = errors.New("taken")

// openByHand opens the lock that most teams would write first: one command each, and the caller's
// clock. (A team that writes it first also forgets the renewal; there is none.)
func openByHand(_ context.Context, at place, asked *requests) (locks, error) {
	driver, err := connect(at, asked)
	if err != nil {
		return locks{}, err
	}
	journaled := true
	coll := driver.Database(at.Database).Collection("locks", options.Collection().
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))
	acquire := func(ctx context.Context, key string) (func() error, error) {
		id := rand.Text()
		err := again(ctx, errTaken, func() error {
			now := time.Now()
			_, err := coll.UpdateOne(ctx,
				bson.D{{Key: "_id", Value: key}, {Key: "until", Value: bson.D{{Key: "$lt", Value: now}}}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "until", Value: now.Add(usualTTL)}, {Key: "id", Value: id}}}},
				options.UpdateOne().SetUpsert(true))
			if mongo.IsDuplicateKeyError(err) {
				return errTaken
			}
			return err
		})
		return func() error {
			_, err := coll.DeleteOne(context.WithoutCancel(ctx), bson.D{{Key: "_id", Value: key}, {Key: "id", Value: id}})
			return err
		}, err
	}
	return locks{acquire, func() error { return driver.Disconnect(context.Background()) }}, nil
}

// openSquare opens github.com/square/mongo-lock, which has no wait of its own.
func openSquare(ctx context.Context, at place, asked *requests) (locks, error) {
	opts := olderoptions.Client().ApplyURI(at.Address).SetMonitor(asked.ofOlderMongo()).
		SetWriteConcern(olderconcern.New(olderconcern.WMajority(), olderconcern.J(true))) //nolint:staticcheck // as its README says
	driver, err := older.Connect(ctx, opts)
	if err != nil {
		return locks{}, err
	}
	client := lock.NewClient(driver.Database(at.Database).Collection("locks"))
	acquire := func(ctx context.Context, key string) (func() error, error) {
		id := rand.Text()
		err := again(ctx, lock.ErrAlreadyLocked, func() error {
			err := client.XLock(ctx, key, id, lock.LockDetails{TTL: uint(usualTTL / time.Second)})
			if !errors.Is(err, older.ErrNoDocuments) {
				return err
			}
			// SecantusDB's answer to an upsert that lost a race, granted or not.
			found, err := client.Status(ctx, lock.Filter{LockId: id})
			if err == nil && len(found) == 0 {
				return lock.ErrAlreadyLocked
			}
			return err
		})
		return func() error {
			freed, err := client.Unlock(context.WithoutCancel(ctx), id)
			if len(freed) == 0 {
				err = cmp.Or(err, errors.New("square/mongo-lock had lost its lock"))
			}
			return err
		}, err
	}
	return locks{acquire, func() error { return driver.Disconnect(context.Background()) }}, client.CreateIndexes(ctx)
}
