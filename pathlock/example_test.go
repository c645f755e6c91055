package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

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

func ExampleNew() {
	ctx := context.Background()
	tree, err := pathlock.New(pathlock.InMemory(), "files")
	check(err)
	defer tree.Close()

	l, err := tree.Lock(ctx, lock("/reports/2026", pathlock.Exclusive, pathlock.Infinity))
	fmt.Println(l.Path, l.Left, err)
	_, err = tree.Lock(ctx, lock("/reports/2026/may.txt", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(errors.Is(err, pathlock.ErrConflict))
	check(tree.Release(ctx, l.Token))
	_, err = tree.Lock(ctx, lock("/reports/2026/may.txt", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(err)
	// Output:
	// /reports/2026 1m0s <nil>
	// true
	// <nil>
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

func ExampleTree_LockWait() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	r := lock("/docs", pathlock.Exclusive, pathlock.Zero)
	r.Timeouts = []time.Duration{time.Second}
	_, err := tree.Lock(ctx, r)
	check(err)

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = tree.LockWait(short, r)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, pathlock.ErrConflict))
	_, err = tree.LockWait(ctx, r) // until the first one has run out
	fmt.Println(err)
	// Output:
	// true true
	// <nil>
}

func ExampleTree_Refresh() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	check(err)
	fresh, err := tree.Refresh(ctx, l.Token, time.Hour)
	fmt.Println(fresh.Token == l.Token, fresh.Timeout, err)
	_, err = tree.Refresh(ctx, "urn:uuid:never-was")
	fmt.Println(err)
	// Output:
	// true 1h0m0s <nil>
	// pathlock: no lock has this token
}

func ExampleTree_Release() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Infinity))
	check(err)
	fmt.Println(tree.Release(ctx, l.Token))
	fmt.Println(tree.Release(ctx, l.Token))
	// Output:
	// <nil>
	// pathlock: no lock has this token
}

func ExampleTree_Close() {
	tree := files()
	fmt.Println(tree.Close())
	_, err := tree.Locks(context.Background())
	fmt.Println(err)
	// Output:
	// <nil>
	// pathlock: the tree is closed
}
