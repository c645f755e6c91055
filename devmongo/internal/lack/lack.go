// Package lack skips a test that lacks something, and names it, so that the skip is not taken for a
// proof. On a machine that is known to have it the skip is a failure.
package lack

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Skip skips a test that lacks the named thing. If MONGOLOCK_REQUIRE lists the name, the test fails.
func Skip(t testing.TB, name string, why error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("MONGOLOCK_REQUIRE"), ","), name) {
		t.Fatalf("no %s, which MONGOLOCK_REQUIRE names: %v", name, why)
	}
	t.Skipf("no %s: %v", name, why)
}
