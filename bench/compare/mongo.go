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

func connect(at place, s setting, asked *requests) (*mongo.Client, error) {
	opts := options.Client().ApplyURI(at.Address).SetMonitor(asked.ofMongo())
	if s.over != nil {
		opts.SetDialer(s.over)
	}
	return mongo.Connect(opts)
}

type byMongolock struct {
	driver *mongo.Client
	client *mongolock.Client
}

func openMongolock(_ context.Context, at place, s setting, asked *requests) (locks, error) {
	driver, err := connect(at, s, asked)
	if err != nil {
		return nil, err
	}
	client, err := mongolock.New(driver.Database(at.Database).Collection("locks"),
		mongolock.WithLogger(slog.New(slog.DiscardHandler)), mongolock.TTL(s.ttlOr(usualTTL)))
	return byMongolock{driver, client}, err
}

func (m byMongolock) acquire(ctx context.Context, key string) (func() error, error) {
	lease, err := m.client.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (m byMongolock) close() error {
	return errors.Join(m.client.Close(), m.driver.Disconnect(context.Background()))
}

// byHand is the lock that most teams would write first: one command each, and the caller's
// clock. (A team that writes it first also forgets the renewal; there is none.)
type byHand struct {
	driver *mongo.Client
	coll   *mongo.Collection
	ttl    time.Duration
}

func openByHand(_ context.Context, at place, s setting, asked *requests) (locks, error) {
	driver, err := connect(at, s, asked)
	if err != nil {
		return nil, err
	}
	journaled := true
	coll := driver.Database(at.Database).Collection("locks", options.Collection().
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))
	return byHand{driver, coll, s.ttlOr(usualTTL)}, nil
}

var errTaken = errors.New("taken")

func (h byHand) acquire(ctx context.Context, key string) (func() error, error) {
	id := rand.Text()
	err := again(ctx, errTaken, func() error {
		now := time.Now()
		_, err := h.coll.UpdateOne(ctx,
			bson.D{{Key: "_id", Value: key}, {Key: "until", Value: bson.D{{Key: "$lt", Value: now}}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "until", Value: now.Add(h.ttl)}, {Key: "id", Value: id}}}},
			options.UpdateOne().SetUpsert(true))
		if mongo.IsDuplicateKeyError(err) {
			return errTaken
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := h.coll.DeleteOne(context.WithoutCancel(ctx), bson.D{{Key: "_id", Value: key}, {Key: "id", Value: id}})
		return err
	}, nil
}

func (h byHand) close() error { return h.driver.Disconnect(context.Background()) }

// bySquare is github.com/square/mongo-lock, which has no wait of its own.
type bySquare struct {
	driver *older.Client
	client *lock.Client
	ttl    time.Duration
}

func openSquare(ctx context.Context, at place, s setting, asked *requests) (locks, error) {
	opts := olderoptions.Client().ApplyURI(at.Address).SetMonitor(asked.ofOlderMongo()).
		SetWriteConcern(olderconcern.New(olderconcern.WMajority(), olderconcern.J(true))) //nolint:staticcheck // as its README says
	if s.over != nil {
		opts.SetDialer(s.over)
	}
	driver, err := older.Connect(ctx, opts)
	if err != nil {
		return nil, err
	}
	client := lock.NewClient(driver.Database(at.Database).Collection("locks"))
	return bySquare{driver, client, s.ttlOr(usualTTL)}, client.CreateIndexes(ctx)
}

func (q bySquare) acquire(ctx context.Context, key string) (func() error, error) {
	id := rand.Text()
	err := again(ctx, lock.ErrAlreadyLocked, func() error {
		err := q.client.XLock(ctx, key, id, lock.LockDetails{TTL: uint(q.ttl / time.Second)})
		if errors.Is(err, older.ErrNoDocuments) { // SecantusDB's answer to an upsert that lost a race, granted or not
			return q.lookAgain(ctx, id)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		freed, err := q.client.Unlock(context.WithoutCancel(ctx), id)
		if len(freed) == 0 {
			err = cmp.Or(err, errors.New("square/mongo-lock had lost its lock"))
		}
		return err
	}, nil
}

// lookAgain asks whether the lock with this ID was granted.
func (q bySquare) lookAgain(ctx context.Context, id string) error {
	found, err := q.client.Status(ctx, lock.Filter{LockId: id})
	if err == nil && len(found) == 0 {
		return lock.ErrAlreadyLocked
	}
	return err
}

func (q bySquare) close() error { return q.driver.Disconnect(context.Background()) }
