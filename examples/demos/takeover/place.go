package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/devmongo"
	"github.com/mongolock/mongolock/store/filestore"
)

// A Place is where the lock is kept: a database, or a folder.
type Place struct{ URI, Database, Folder string }

// A wish is what the command line says of the place.
type wish struct {
	uri      string
	embedded string
	files    bool
}

// local is where an installed MongoDB listens by default.
const local = "mongodb://127.0.0.1:27017/?directConnection=true"

// find returns the place for a wish: the server that it names, or else a MongoDB that is
// reachable or installed, or else the embedded server if that was built before, or else
// files. It says which, and why. Call end when the demo is over.
func find(ctx context.Context, w wish) (p Place, end func() error, err error) {
	switch {
	case w.files:
		return inFiles("files in a folder, as -files asks.")
	case w.uri != "":
		if err := writable(ctx, w.uri, 5*time.Second); err != nil {
			return p, nil, fmt.Errorf("the server of MONGODB_URI or -uri cannot be used: %w", err)
		}
		return onServer(w.uri, "the server that MONGODB_URI or -uri names.", nothing)
	case writable(ctx, local, time.Second) == nil:
		return onServer(local, "the MongoDB on port 27017 of this machine, in a database of its own that is dropped at the end.", nothing)
	}
	if server, err := devmongo.Start(ctx); err == nil {
		return onServer(server.URI(), servers[server.Kind()], server.Stop)
	}
	if w.embedded != "" {
		if uri, stop, err := serve(ctx, w.embedded); err == nil {
			return onServer(uri, servers[devmongo.FerretDB], stop)
		}
	}
	return inFiles(`files in a folder, because this machine has no MongoDB at hand.
Waiters ask again there, and on MongoDB they are woken. To see it on MongoDB:
    MONGODB_URI=mongodb://… make demo
    make bin/devmongo && make demo     (builds an embedded server: some two minutes, once)`)
}

var servers = map[devmongo.Kind]string{
	devmongo.Mongod:   "a mongod that was started for this.",
	devmongo.Secantus: "SecantusDB, which speaks MongoDB's protocol, started for this.",
	devmongo.Docker:   "mongo:8 in Docker, started for this.",
	devmongo.FerretDB: "FerretDB, which speaks MongoDB's protocol, embedded and started for this.",
}

func nothing() error { return nil }

func onServer(uri, what string, stop func() error) (Place, func() error, error) {
	fmt.Printf("The lock is kept by %s\n\n", what)
	p := Place{URI: uri, Database: "mongolock_demo_" + rand.Text()[:8]}
	return p, func() error { return errors.Join(p.drop(), stop()) }, nil
}

func inFiles(what string) (Place, func() error, error) {
	fmt.Printf("The lock is kept in %s\n\n", what)
	folder, err := os.MkdirTemp("", "mongolock-demo-locks-")
	return Place{Folder: folder}, func() error { return os.RemoveAll(folder) }, err
}

// open makes the client of one process. Call leave at the end.
func (p Place) open(owner string) (locks *mongolock.Client, leave func(), err error) {
	quiet := mongolock.WithLogger(slog.New(slog.DiscardHandler)) // the parent says what happens
	if p.Folder != "" {
		files, err := filestore.Open(p.Folder)
		if err != nil {
			return nil, nil, err
		}
		locks, err = mongolock.NewWithStore(files, mongolock.WithOwner(owner), mongolock.TTL(ttl), quiet)
		if err != nil {
			return nil, nil, err
		}
		return locks, func() { locks.Close() }, nil
	}
	db, err := mongo.Connect(options.Client().ApplyURI(p.URI))
	if err != nil {
		return nil, nil, err
	}
	locks, err = mongolock.New(db.Database(p.Database).Collection("locks"),
		mongolock.WithOwner(owner), mongolock.TTL(ttl), quiet, mongolock.WithoutIndex()) // the database is dropped soon
	if err != nil {
		return nil, nil, errors.Join(err, db.Disconnect(context.Background()))
	}
	return locks, func() { locks.Close(); disconnect(db) }, nil
}

// drop removes the database of the demo.
func (p Place) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	db, err := mongo.Connect(options.Client().ApplyURI(p.URI))
	if err != nil {
		return err
	}
	defer disconnect(db)
	if err := db.Database(p.Database).Drop(ctx); err != nil {
		return fmt.Errorf("the database %s is left behind: %w", p.Database, err)
	}
	return nil
}

// writable tries the server with a document in a database of its own.
func writable(ctx context.Context, uri string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	db, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(within))
	if err != nil {
		return err
	}
	defer disconnect(db)
	scratch := db.Database("mongolock_demo_" + rand.Text()[:8])
	if _, err := scratch.Collection("try").InsertOne(ctx, bson.D{}); err != nil {
		return err
	}
	return scratch.Drop(ctx)
}

// disconnect does not wait long for a server that is gone.
func disconnect(db *mongo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	db.Disconnect(ctx)
}

// serve runs a devmongo that has the embedded server, and returns the server's address.
func serve(ctx context.Context, devmongo string) (uri string, stop func() error, err error) {
	cmd := exec.CommandContext(ctx, devmongo, "serve", "--kind", "ferretdb")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			return err
		}
		return cmd.Wait()
	}
	uri, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return strings.TrimSpace(uri), stop, nil
}
