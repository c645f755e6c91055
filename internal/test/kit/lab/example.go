package lab

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
)

// Example runs a test in an example, which has no t. What fails the test is printed, or panics.
func Example(test func(t testing.TB)) {
	t := new(exampleT)
	defer func() {
		for _, f := range slices.Backward(t.cleanups) {
			f()
		}
	}()
	test(t)
}

// An exampleT is as much of a testing.T as examples need.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func (*exampleT) Helper()                  {}
func (*exampleT) Logf(string, ...any)      {} // of what a busy machine is late with
func (*exampleT) Failed() bool             { return false }
func (*exampleT) Output() io.Writer        { return io.Discard }
func (*exampleT) Context() context.Context { return context.Background() }
func (t *exampleT) Cleanup(f func())       { t.cleanups = append(t.cleanups, f) }
func (*exampleT) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }

func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
