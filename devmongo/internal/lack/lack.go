// Package lack skips a test for want of something, by its name, so that nobody takes the skip for a
// proof. A machine that has the thing says so, and then the skip is a failure.
package lack

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Skip ends a test that lacks the named thing. If MONGOLOCK_REQUIRE lists the name, the test fails.
func Skip(t testing.TB, name string, why error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("MONGOLOCK_REQUIRE"), ","), name) {
		t.Fatalf("no %s, which MONGOLOCK_REQUIRE asks for: %v", name, why)
	}
	t.Skipf("no %s: %v", name, why)
}
