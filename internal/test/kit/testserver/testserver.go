// Package testserver tells a test which server it runs on and what that server is capable of.
// It reads variables that `devmongo exec` sets, which finds or starts a server and probes its
// capabilities.
package testserver

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// URI returns the server's URI if the server has all capabilities that the test needs.
// Otherwise the test skips and names what is missing, or fails if MONGOLOCK_REQUIRE lists it.
// A need that begins with "!" is the lack of a capability: "!router" skips on a mongos.
func URI(t testing.TB, needs ...string) string {
	t.Helper()
	for _, need := range append([]string{"mongodb"}, needs...) {
		switch {
		case Has(need):
		case listed("MONGOLOCK_REQUIRE", need):
			t.Fatalf("needs %s, which MONGOLOCK_REQUIRE lists and this server does not have", need)
		case need == "mongodb":
			t.Skipf("needs %s: there is no server here, and `make test` finds or starts one", need)
		default:
			t.Skipf("needs %s: this server (%s) does not show it; the summary of `make test` names one that does", need, kind())
		}
	}
	return os.Getenv("MONGODB_URI")
}

// kind names the server for people.
func kind() string { return cmp.Or(os.Getenv("MONGOLOCK_KIND"), "that of MONGODB_URI") }

// Need is URI for a test that does not connect by itself.
func Need(t testing.TB, capabilities ...string) {
	t.Helper()
	URI(t, capabilities...)
}

// Has reports whether the server has a capability, or lacks one that begins with "!".
// "mongodb" means that there is a server. `devmongo exec` tells the others; its README lists
// them: "v60" is a MongoDB 6.0 or later, "router" a mongos.
func Has(capability string) bool {
	if lacked, ok := strings.CutPrefix(capability, "!"); ok {
		return !Has(lacked)
	}
	if capability == "mongodb" {
		return os.Getenv("MONGODB_URI") != ""
	}
	return listed("MONGOLOCK_HAS", capability)
}

func listed(variable, what string) bool {
	return slices.Contains(strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' }), what)
}

// SkipExamples is called by TestMain, because examples cannot skip themselves. It leaves out
// the examples that match if the server lacks what they need, and says so. It never fails:
// tests insist on what MONGOLOCK_REQUIRE lists.
func SkipExamples(match, need string) {
	if Has(need) {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: examples need %s: skipping %s\n", filepath.Base(os.Args[0]), need, match)
	flag.Parse() // a later one would undo what is set here
	skip := flag.Lookup("test.skip").Value
	if skip.String() != "" {
		match = skip.String() + "|" + match
	}
	if err := skip.Set(match); err != nil {
		panic(err)
	}
}
