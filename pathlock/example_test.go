package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/pathlock"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// files makes a tree in memory. With OnMongo in the place of InMemory all processes with
// the same collection share it.
func files(opts ...pathlock.Option) *pathlock.Tree {
	tree, err := pathlock.New(pathlock.InMemory(), "files", opts...)
	check(err)
	return tree
}

func lock(path string, mode pathlock.Mode, depth pathlock.Depth) pathlock.Request {
	return pathlock.Request{Path: path, Mode: mode, Depth: depth, Timeouts: []time.Duration{time.Minute}}
}

func write(_ context.Context, path string) error {
	fmt.Println("writing below", path)
	return nil
}

// This is the example of the package comment, on a storage in memory.
func Example() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	err := tree.Do(ctx, pathlock.Request{Path: "/reports/2026"}, func(ctx context.Context, h *pathlock.Hold) error {
		return write(ctx, h.Lock.Path) // ctx ends when the path is not held any more
	})
	if err != nil {
		fmt.Println(err)
	}
	report := pathlock.Request{Path: "/reports/2026", Timeouts: []time.Duration{10 * time.Minute}}
	lock, err := tree.Lock(ctx, report)
	var conflict *pathlock.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println(conflict.Len(), "in the way:", conflict.Same[0].Path)
		return
	}
	defer tree.Release(ctx, lock.Token)
	// Output: writing below /reports/2026
}

// A conflict lists the locks in the way: above the path, on it, and below it.
func ExampleTree_Lock() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	for _, r := range []pathlock.Request{
		lock("/", pathlock.Shared, pathlock.Infinity),
		lock("/docs", pathlock.Shared, pathlock.Zero),
		lock("/docs/plan.txt", pathlock.Shared, pathlock.Zero),
	} {
		_, err := tree.Lock(ctx, r)
		check(err)
	}
	_, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Infinity))
	var c *pathlock.ConflictError
	if errors.As(err, &c) {
		fmt.Println(c.Len(), c.Parents[0].Path, c.Same[0].Path, c.Children[0].Path)
	}
	// Output: 3 / /docs /docs/plan.txt
}

// A lock of depth 0 on a directory guards the list of its files, not their content.
func ExampleTree_Confirm() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	check(err)
	none, mine := []string(nil), []string{l.Token}
	fmt.Println(tree.Confirm(ctx, none, pathlock.Modify("/docs/plan.txt")))
	fmt.Println(tree.Confirm(ctx, none, pathlock.AddTo("/docs")))
	fmt.Println(tree.Confirm(ctx, none, pathlock.Delete("/docs/plan.txt")))
	fmt.Println(tree.Confirm(ctx, mine, pathlock.Delete("/docs/plan.txt"), pathlock.AddTo("/docs")))
	// Output:
	// <nil>
	// pathlock: may not add to "/docs": it is locked
	// pathlock: may not delete "/docs/plan.txt": "/docs" is locked
	// <nil>
}

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

// A file system that ignores case has one file for both spellings.
func ExampleWithAlias() {
	ctx := context.Background()
	tree := files(pathlock.WithAlias(func(path string) (string, error) { return strings.ToLower(path), nil }))
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/Docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(l.Path, err)
	_, err = tree.Lock(ctx, lock("/DOCS", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(errors.Is(err, pathlock.ErrConflict))
	// Output:
	// /docs <nil>
	// true
}

func ExampleWithLimits() {
	ctx := context.Background()
	tree := files(pathlock.WithLimits(pathlock.Limits{Most: time.Hour}))
	defer tree.Close()
	r := lock("/docs", pathlock.Exclusive, pathlock.Zero)
	r.Timeouts = []time.Duration{pathlock.Infinite, 24 * time.Hour, 30 * time.Minute}
	l, err := tree.Lock(ctx, r)
	fmt.Println(l.Timeout, err) // the first wish that is allowed
	// Output: 30m0s <nil>
}

// One process takes a path, and another one goes on with it.
func ExampleTree_Resume() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	h, err := tree.Hold(ctx, pathlock.Request{Path: "/docs"})
	check(err)
	check(h.Detach())
	h, err = tree.Resume(ctx, h.Lock) // its path and token are enough
	check(err)
	fmt.Println(h.Err(), h.Release())
	// Output: <nil> <nil>
}
