package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

func ExampleClean() {
	for _, path := range []string{"a//b/", "", "/f%20", "/a/../b"} {
		clean, err := pathlock.Clean(path)
		fmt.Printf("%q %v\n", clean, err)
	}
	// Output:
	// "/a/b" <nil>
	// "/" <nil>
	// "/f%20" <nil>
	// "" pathlock: not a path: "/a/../b": the segment ".." could mean anything
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

func ExampleWithOwner() {
	tree := files(pathlock.WithOwner("editor on host 7"))
	defer tree.Close()
	l, err := tree.Lock(context.Background(), lock("/docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Printf("%s %v\n", l.Owner, err)
	// Output: editor on host 7 <nil>
}

// A Hold ends that long before its path can be another's.
func ExampleWithMargin() {
	tree := files(pathlock.WithMargin(5 * time.Second))
	defer tree.Close()
	h, err := tree.Hold(context.Background(), lock("/docs", pathlock.Exclusive, pathlock.Zero)) // for a minute
	check(err)
	fmt.Println(h.Remaining().Round(time.Second))
	// Output: 55s
}

func ExampleWithLogger() {
	tree := files(pathlock.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(tree.Close())
	// Output: <nil>
}
