package pathlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

func ExampleTree_Locks() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	for _, path := range []string{"/b", "/a/x", "/a"} {
		_, err := tree.Lock(ctx, lock(path, pathlock.Shared, pathlock.Zero))
		check(err)
	}
	all, err := tree.Locks(ctx)
	check(err)
	for _, l := range all {
		fmt.Println(l.Path, l.Mode, l.Depth)
	}
	// Output:
	// /a shared 0
	// /a/x shared 0
	// /b shared 0
}

func ExampleTree_Affecting() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	for _, r := range []pathlock.Request{
		lock("/", pathlock.Shared, pathlock.Infinity),
		lock("/a/x", pathlock.Shared, pathlock.Zero),
	} {
		_, err := tree.Lock(ctx, r)
		check(err)
	}
	around, err := tree.Affecting(ctx, "/a", pathlock.Infinity)
	check(err)
	fmt.Println(around.Parents[0].Path, len(around.Same), around.Children[0].Path, around.Len())
	// Output: / 0 /a/x 2
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

func ExampleModify() {
	fmt.Println(pathlock.Modify("/docs/plan.txt"))
	// Output: modify "/docs/plan.txt"
}

func ExampleAddTo() {
	fmt.Println(pathlock.AddTo("/docs"))
	// Output: add to "/docs"
}

func ExampleDelete() {
	fmt.Println(pathlock.Delete("/docs"))
	// Output: delete "/docs"
}

func ExampleChange_String() {
	fmt.Println(pathlock.Delete("/docs").String())
	// Output: delete "/docs"
}

func ExampleTree_Watch() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	events, err := tree.Watch(ctx)
	check(err)
	r := lock("/docs", pathlock.Exclusive, pathlock.Zero)
	l, err := tree.Lock(ctx, r)
	check(err)
	check(tree.Release(ctx, l.Token))
	r.Timeouts = []time.Duration{pathlock.MinTimeout}
	_, err = tree.Lock(ctx, r)
	check(err)
	for event, err := range events {
		check(err)
		fmt.Println(event.Kind, event.Lock.Path)
		if event.Kind == pathlock.Expired {
			break
		}
	}
	// Output:
	// added /docs
	// released /docs
	// added /docs
	// expired /docs
}

func ExampleLock_Covers() {
	l := pathlock.Lock{Path: "/a", Depth: pathlock.Infinity}
	fmt.Println(l.Covers("/a"), l.Covers("/a/b"), l.Covers("/ab"))
	// Output: true true false
}

func ExampleAffecting_Len() {
	fmt.Println(pathlock.Affecting{Same: make([]pathlock.Lock, 2)}.Len())
	// Output: 2
}
