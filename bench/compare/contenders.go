package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock"
)

var contenders = []func(context.Context) (contender, error){
	onMongo("**mongolock**", openMongolock),
	onMongo("insert and delete by hand, retried every 100 ms", openByHand),
	onRedis("redislock, retried every 100 ms", "Redis, `appendfsync always`", "--appendonly", "yes", "--appendfsync", "always"),
	onRedis("redislock, retried every 100 ms", "Redis as installed: nothing on disk before the reply", "--appendonly", "no"),
	onEtcd,
}

const pollPause = 100 * time.Millisecond

func onMongo(name string, open func(*mongo.Client, *mongo.Collection) (locks, error)) func(context.Context) (contender, error) {
	return func(context.Context) (contender, error) {
		uri := os.Getenv("MONGODB_URI")
		if uri == "" {
			return contender{}, errors.New("no MONGODB_URI: `make compare` sets it")
		}
		database := "compare_" + rand.Text()
		asked := new(requests)
		connect := func() (*mongo.Client, error) {
			return mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(asked.ofMongo()))
		}
		return contender{
			name: name, server: os.Getenv("MONGOLOCK_KIND") + ", `majority`, journal on disk", asked: asked,
			open: func(context.Context) (locks, error) {
				driver, err := connect()
				if err != nil {
					return nil, err
				}
				return open(driver, driver.Database(database).Collection("locks"))
			},
			close: func() error {
				driver, err := connect()
				if err != nil {
					return err
				}
				ctx := context.Background()
				return errors.Join(driver.Database(database).Drop(ctx), driver.Disconnect(ctx))
			},
		}, nil
	}
}

type byMongolock struct {
	driver *mongo.Client
	client *mongolock.Client
}

func openMongolock(driver *mongo.Client, coll *mongo.Collection) (locks, error) {
	client, err := mongolock.New(coll, mongolock.WithLogger(slog.New(slog.DiscardHandler)))
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

// byHand is the lock that most teams would write first.
type byHand struct {
	driver *mongo.Client
	coll   *mongo.Collection
}

func openByHand(driver *mongo.Client, coll *mongo.Collection) (locks, error) {
	journaled := true
	coll = coll.Database().Collection("by_hand", options.Collection().
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))
	return byHand{driver, coll}, nil
}

func (h byHand) acquire(ctx context.Context, key string) (func() error, error) {
	for {
		_, err := h.coll.InsertOne(ctx, bson.D{{Key: "_id", Value: key}, {Key: "until", Value: time.Now().Add(30 * time.Second)}})
		switch {
		case err == nil:
			return func() error {
				_, err := h.coll.DeleteOne(ctx, bson.D{{Key: "_id", Value: key}})
				return err
			}, nil
		case !mongo.IsDuplicateKeyError(err):
			return nil, err
		}
		select {
		case <-time.After(pollPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (h byHand) close() error { return h.driver.Disconnect(context.Background()) }
