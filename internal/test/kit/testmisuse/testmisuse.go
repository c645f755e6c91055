// Package testmisuse runs tests that are meant to fail, in virtual time: those that misuse what
// this library offers for tests.
package testmisuse

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// A T is a test that may fail.
type T struct {
	testing.TB
	cleanups []func()
	failures []string
}

// Helper does nothing.
func (*T) Helper() {}

// Logf does nothing.
func (*T) Logf(string, ...any) {}

// Cleanup has f called when the test has ended.
func (t *T) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Failed reports whether it failed.
func (t *T) Failed() bool { return len(t.failures) > 0 }

// Errorf makes it fail.
func (t *T) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// Fatalf makes it fail, and ends it.
func (t *T) Fatalf(format string, args ...any) { t.Errorf(format, args...); panic(t) }

// Failures runs a test to its end, its clean-ups included, in a bubble of its own, and
// says how it failed: nothing if it did not.
func Failures(in *testing.T, test func(*T)) string {
	in.Helper()
	t := &T{TB: in}
	synctest.Test(in, func(*testing.T) {
		defer func() {
			if r := recover(); r != nil && r != any(t) {
				panic(r)
			}
			for i := len(t.cleanups) - 1; i >= 0; i-- {
				t.cleanups[i]()
			}
		}()
		test(t)
	})
	return strings.Join(t.failures, "\n")
}
