package pathlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/pathlock/pathlocktest"
)

// write stands for the code under test.
func write(ctx context.Context, tree *pathlock.Tree, path string) string {
	lock, err := tree.Lock(ctx, pathlock.Request{Path: path, Timeouts: []time.Duration{time.Minute}})
	switch {
	case errors.Is(err, pathlock.ErrConflict):
		return "somebody else writes it"
	case err != nil:
		return "not written"
	}
	defer tree.Release(ctx, lock.Token)
	return "written"
}

// Hold shows what the code does while another process has the path, and after that.
func ExampleTree_Hold() {
	lab.Example(func(t testing.TB) {
		tree := pathlocktest.New(t)
		release := tree.Hold(pathlock.Request{Path: "/reports", Depth: pathlock.Infinity})
		fmt.Println(write(t.Context(), tree.Tree, "/reports/may.txt"))
		release()
		fmt.Println(write(t.Context(), tree.Tree, "/reports/may.txt"))
	})
	// Output:
	// somebody else writes it
	// written
}
