package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/pathlock"
)

// OnMongo and New send nothing. The collection need not exist.
func ExampleOnMongo() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	check(err)
	defer func() { _ = conn.Disconnect(context.Background()) }()
	storage, err := pathlock.OnMongo(conn.Database("app").Collection("paths"))
	check(err)
	tree, err := pathlock.New(storage, "files")
	check(err)
	fmt.Println(tree.Close())
	// Output: <nil>
}

// An operator who grants no right to make indexes makes them once.
func ExampleMongo_EnsureIndex() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	check(err)
	storage, err := pathlock.OnMongo(conn.Database("app").Collection("paths"))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	check(conn.Disconnect(context.Background())) // here nothing is to be sent
	fmt.Println(storage.EnsureIndex(ctx) != nil)
	// Output: true
}

func ExampleWithoutIndex() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	check(err)
	defer func() { _ = conn.Disconnect(context.Background()) }()
	_, err = pathlock.OnMongo(conn.Database("app").Collection("paths"), pathlock.WithoutIndex())
	fmt.Println(err)
	// Output: <nil>
}

// The processes of one host need no server.
func ExampleInDir() {
	dir, err := os.MkdirTemp("", "paths")
	check(err)
	defer os.RemoveAll(dir)
	storage, err := pathlock.InDir(dir)
	check(err)
	defer storage.Close()
	tree, err := pathlock.New(storage, "files")
	check(err)
	defer tree.Close()
	_, err = tree.Lock(context.Background(), lock("/docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleDir_Close() {
	dir, err := os.MkdirTemp("", "paths")
	check(err)
	defer os.RemoveAll(dir)
	storage, err := pathlock.InDir(dir)
	check(err)
	fmt.Println(storage.Close())
	// Output: <nil>
}

// Two trees with the same storage and name behave like two processes.
func ExampleInMemory() {
	ctx, storage := context.Background(), pathlock.InMemory()
	one, err := pathlock.New(storage, "files")
	check(err)
	defer one.Close()
	two, err := pathlock.New(storage, "files")
	check(err)
	defer two.Close()
	_, err = one.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(err)
	_, err = two.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(errors.Is(err, pathlock.ErrConflict))
	// Output:
	// <nil>
	// true
}
