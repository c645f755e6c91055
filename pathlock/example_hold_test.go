package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/pathlock"
)

// heldDocs is a hold of /docs, in a tree that the function closes.
func heldDocs() (*pathlock.Hold, func() error) {
	tree := files()
	h, err := tree.Hold(context.Background(), pathlock.Request{Path: "/docs"})
	check(err)
	return h, tree.Close
}

func ExampleHold_Err() {
	h, shut := heldDocs()
	fmt.Println(h.Err())
	check(shut())
	fmt.Println(h.Err())
	// Output:
	// <nil>
	// pathlock: the tree is closed
}

func ExampleHold_Done() {
	h, shut := heldDocs()
	go func() { check(shut()) }()
	<-h.Done()
	fmt.Println(errors.Is(h.Err(), mongolock.ErrClosed))
	// Output: true
}

func ExampleHold_Context() {
	h, shut := heldDocs()
	defer shut()
	ctx := h.Context(context.Background())
	check(h.Release())
	fmt.Println(context.Cause(ctx))
	// Output: mongolock: lease was released
}

func ExampleHold_Remaining() {
	h, shut := heldDocs()
	defer shut()
	fmt.Println(h.Remaining().Round(time.Second)) // 30 s, less the margin
	check(h.Release())
	fmt.Println(h.Remaining())
	// Output:
	// 29s
	// 0s
}

func ExampleHold_Release() {
	h, shut := heldDocs()
	defer shut()
	fmt.Println(h.Release())
	// Output: <nil>
}

func ExampleHold_Detach() {
	h, shut := heldDocs()
	defer shut()
	fmt.Println(h.Detach())
	fmt.Println(h.Err()) // the lock stays: see Resume
	// Output:
	// <nil>
	// mongolock: lease was detached
}
