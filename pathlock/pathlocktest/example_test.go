package pathlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

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

// inTest stands for func TestWrite(t *testing.T), because an example has no t.
func inTest(test func(t testing.TB)) {
	t := new(exampleT)
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
	}()
	test(t)
}

// An exampleT is as much of a testing.T as the examples need.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func (*exampleT) Helper()                  {}
func (*exampleT) Context() context.Context { return context.Background() }
func (t *exampleT) Cleanup(f func())       { t.cleanups = append(t.cleanups, f) }

func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Hold shows what the code does while another process has the path, and after that.
func ExampleTree_Hold() {
	inTest(func(t testing.TB) {
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
