package mongolocktest_test

import (
	"context"
	"fmt"
	"io"
	"testing"
)

// An exampleT is as much of a testing.T as the examples need.
type exampleT struct {
	testing.TB
	cleanup []func()
}

func (*exampleT) Helper()                  {}
func (*exampleT) Logf(string, ...any)      {} // of what a busy machine is late with
func (*exampleT) Failed() bool             { return false }
func (*exampleT) Output() io.Writer        { return io.Discard }
func (*exampleT) Context() context.Context { return context.Background() }
func (t *exampleT) Cleanup(f func())       { t.cleanup = append(t.cleanup, f) }
func (*exampleT) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }

func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A failingT notes that the test fails. What it is told has the places of files.
type failingT struct {
	testing.TB
	failed bool
}

func (t *failingT) Errorf(string, ...any) { t.failed = true }
