package pathlock_test

import (
	"context"
	"errors"
	"fmt"
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

func ExampleWithPolicy() {
	ctx := context.Background()
	tree := files(pathlock.WithPolicy(func([]time.Duration) time.Duration { return 5 * time.Minute }))
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(l.Timeout, err)
	// Output: 5m0s <nil>
}

func ExampleLimits_Pick() {
	limits := pathlock.Limits{Least: time.Minute, Most: time.Hour, Default: 10 * time.Minute}
	fmt.Println(limits.Pick(nil))
	fmt.Println(limits.Pick([]time.Duration{pathlock.Infinite}))
	fmt.Println(limits.Pick([]time.Duration{time.Second}))
	fmt.Println(limits.Pick([]time.Duration{pathlock.Infinite, 20 * time.Minute}))
	// Output:
	// 10m0s
	// 1h0m0s
	// 1m0s
	// 20m0s
}
