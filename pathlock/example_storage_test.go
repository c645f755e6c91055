package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

func ExampleWithLogger() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	check(err)
	defer func() { _ = conn.Disconnect(context.Background()) }()
	_, err = pathlock.OnMongo(conn.Database("app").Collection("paths"), pathlock.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(err)
	// Output: <nil>
}

// A storage of your own has View and Update.
func ExampleOnDocuments() {
	type mine struct{ *pathlock.Memory }
	storage, err := pathlock.OnDocuments(mine{pathlock.InMemory()})
	check(err)
	tree, err := pathlock.New(storage, "files")
	check(err)
	defer tree.Close()
	_, err = tree.Lock(context.Background(), pathlock.Request{Path: "/docs"})
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

func ExampleInMemoryWithClock() {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tree, err := pathlock.New(pathlock.InMemoryWithClock(func() time.Time { return now }), "files")
	check(err)
	defer tree.Close()
	l, err := tree.Lock(context.Background(), lock("/docs", pathlock.Exclusive, pathlock.Zero))
	check(err)
	now = now.Add(time.Minute) // and it has run out
	_, err = tree.Refresh(context.Background(), l.Token)
	fmt.Println(l.ExpireAt.Format(time.TimeOnly), err)
	// Output: 12:01:00 pathlock: no lock has this token
}

// A storage of your own keeps documents, and applies edits to them.
func ExampleDocument_Apply() {
	doc := pathlock.NewDocument(stored("1", "/a", 20))
	doc.Apply(pathlock.Edit{Drop: []string{"urn:uuid:1"}, Put: []pathlock.Lock{stored("2", "/b", 30)}})
	for l := range doc.Locks() {
		fmt.Println(l.Path)
	}
	// Output: /b
}

func stored(token, path string, second int64) pathlock.Lock {
	return pathlock.Lock{Token: "urn:uuid:" + token, Path: path, Mode: pathlock.Shared, Depth: pathlock.Zero, ExpireAt: time.Unix(second, 0)}
}

func ExampleNewDocument() {
	doc := pathlock.NewDocument() // a tree that was never written
	fmt.Println(doc.Seq, len(doc.Log))
	// Output: 0 0
}

func ExampleDocument_Locks() {
	for l := range pathlock.NewDocument(stored("1", "/a", 20)).Locks() {
		fmt.Println(l.Token)
	}
	// Output: urn:uuid:1
}

// A storage that knows its clock only as an interval looks at it again if a lock runs out
// within the interval.
func ExampleDocument_RunsOutBetween() {
	doc := pathlock.NewDocument(stored("1", "/a", 20))
	fmt.Println(doc.RunsOutBetween(time.Unix(19, 0), time.Unix(21, 0)), doc.RunsOutBetween(time.Unix(20, 0), time.Unix(21, 0)))
	// Output: true false
}

func ExampleEdit_Empty() {
	fmt.Println(pathlock.Edit{}.Empty(), pathlock.Edit{Touch: true}.Empty())
	// Output: true false
}
