// Package testserver tells a test which server it runs on. What it reads is set by
// `devmongo exec`, which finds or starts a server and finds out what it can show.
package testserver

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// URI is the server's, if it has all that the test needs. Else the test skips, and
// names what it lacks; where MONGOLOCK_REQUIRE lists that, it fails.
func URI(t testing.TB, needs ...string) string {
	t.Helper()
	for _, need := range append([]string{"mongodb"}, needs...) {
		switch {
		case Has(need):
		case listed("MONGOLOCK_REQUIRE", need):
			t.Fatalf("needs %s, which MONGOLOCK_REQUIRE lists and the server here does not have", need)
		default:
			t.Skipf("needs %s: `make test` finds or starts a server and tells what it has", need)
		}
	}
	return os.Getenv("MONGODB_URI")
}

// Has reports whether the server has a capability; "mongodb" is that there is one.
func Has(capability string) bool {
	if capability == "mongodb" {
		return os.Getenv("MONGODB_URI") != ""
	}
	return listed("MONGOLOCK_HAS", capability)
}

func listed(variable, what string) bool {
	return slices.Contains(strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' }), what)
}

// SkipExamples is for TestMain. Examples have no Skip of their own: those that match are
// left out where the server does not have what they need, and that is named. What
// MONGOLOCK_REQUIRE lists the tests insist on.
func SkipExamples(match, need string) {
	if Has(need) {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: examples need %s: skipping %s\n", filepath.Base(os.Args[0]), need, match)
	flag.Parse() // or what -skip says would come later
	skip := flag.Lookup("test.skip").Value
	if skip.String() != "" {
		match = skip.String() + "|" + match
	}
	if err := skip.Set(match); err != nil {
		panic(err)
	}
}
