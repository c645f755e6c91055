package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/devmongo"
)

// A lab is the server on which figures are taken.
type lab struct {
	server *devmongo.Server
	uri    string
	driver *mongo.Client
}

func openLab(ctx context.Context, kind devmongo.Kind) (*lab, error) {
	server, err := devmongo.Start(ctx, devmongo.WithKind(kind))
	if err != nil {
		return nil, fmt.Errorf("the figures on MongoDB need a server of kind %q, which `make server` puts in place: %w", kind, err)
	}
	l := &lab{server: server, uri: server.URI()}
	if l.driver, err = connect(l.uri, nil); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return l, nil
}

func (l *lab) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(l.driver.Disconnect(ctx), l.server.Stop())
}

// connect connects to the server, and counts the commands that are sent unless sent is nil.
func connect(uri string, sent *atomic.Int64) (*mongo.Client, error) {
	opts := options.Client().ApplyURI(uri)
	if sent != nil {
		opts.SetMonitor(&event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { sent.Add(1) }})
	}
	return mongo.Connect(opts)
}

// locks returns a client on a collection of its own, and the same collection by hand.
func (l *lab) locks(name string, opts ...mongolock.ClientOption) (*mongolock.Client, byHand, error) {
	coll := locksOf(l.driver, name)
	client, err := mongolock.New(coll, append(opts, quiet)...)
	return client, handOn(coll), err
}

func locksOf(driver *mongo.Client, name string) *mongo.Collection {
	return driver.Database("bench_" + name).Collection("locks")
}

var quiet = mongolock.WithLogger(slog.New(slog.DiscardHandler))

// version returns the version that the server reports.
func (l *lab) version(ctx context.Context) string {
	var info struct {
		Version string `bson:"version"`
	}
	if err := l.driver.Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info); err != nil {
		return "of unknown version"
	}
	return info.Version
}
