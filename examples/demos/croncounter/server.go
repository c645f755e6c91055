package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/devmongo"
	"github.com/mongolock/mongolock/store/filestore"
)

// findServer asks for a server that this machine has, if none is named, and says what keeps
// the lock. Call end when the demo is over.
func (o *order) findServer(ctx context.Context) (end func() error, err error) {
	stop, where := func() error { return nil }, "the server that MONGODB_URI names"
	if o.URI = os.Getenv("MONGODB_URI"); o.URI == "" {
		server, err := devmongo.Start(ctx, "")
		if err != nil {
			fmt.Print("The lock is kept in files in a folder, because this machine has no MongoDB at hand.\n",
				"Waiters ask again there, and on MongoDB they are woken: MONGODB_URI=mongodb://… make demo\n\n")
			return stop, nil
		}
		o.URI, stop, where = server.URI(), server.Stop, "a server ("+server.Kind()+") that was started for this"
	}
	o.Database = "mongolock_demo_" + rand.Text()[:8]
	if err := o.drop(ctx); err != nil { // it shows early whether the server answers
		return nil, errors.Join(fmt.Errorf("the server cannot be used: %w", err), stop())
	}
	fmt.Printf("The lock is kept by %s.\n\n", where)
	return func() error { return errors.Join(o.drop(context.Background()), stop()) }, nil
}

// open makes the client of one process.
func (o order) open() (*mongolock.Client, error) {
	opts := []mongolock.ClientOption{mongolock.WithOwner(o.Name), mongolock.TTL(ttl), mongolock.WithLogger(slog.New(slog.DiscardHandler))} // the parent says what happens
	if o.URI == "" {
		files, err := filestore.Open(o.Folder)
		if err != nil {
			return nil, err
		}
		return mongolock.NewWithStore(files, opts...)
	}
	db, err := mongo.Connect(options.Client().ApplyURI(o.URI))
	if err != nil {
		return nil, err
	}
	return mongolock.New(db.Database(o.Database).Collection("locks"), append(opts, mongolock.WithoutIndex())...) // the database is dropped soon
}

// drop removes the database of the demo.
func (o order) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	db, err := mongo.Connect(options.Client().ApplyURI(o.URI))
	if err != nil {
		return err
	}
	return errors.Join(db.Database(o.Database).Drop(ctx), db.Disconnect(ctx))
}
