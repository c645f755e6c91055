package testserver_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/mongolock/mongolock/internal/testserver"
)

// A witness is a test that notes how it ended, and goes on.
type witness struct {
	testing.TB
	skipped, failed string
}

func (w *witness) Helper()                        {}
func (w *witness) Skipf(format string, a ...any)  { w.skipped = fmt.Sprintf(format, a...) }
func (w *witness) Fatalf(format string, a ...any) { w.failed = fmt.Sprintf(format, a...) }

func TestATestRunsSkipsByNameOrFailsAsTheServerAllows(t *testing.T) {
	for _, c := range []struct {
		uri, has, require string
		skips, fails      bool
	}{
		{uri: "mongodb://here", has: "ttl,atomic"},
		{uri: "mongodb://here", has: "ttl, atomic", require: "atomic"},
		{uri: "mongodb://here", has: "ttl,atomicity", skips: true},
		{uri: "mongodb://here", skips: true},
		{uri: "mongodb://here", has: "ttl", require: "atomic", fails: true},
		{has: "atomic", skips: true},
		{has: "atomic", require: "mongodb", fails: true},
	} {
		t.Setenv("MONGODB_URI", c.uri)
		t.Setenv("MONGOLOCK_HAS", c.has)
		t.Setenv("MONGOLOCK_REQUIRE", c.require)
		var w witness
		testserver.URI(&w, "atomic")
		if c.skips != (w.skipped != "") || c.fails != (w.failed != "") {
			t.Errorf("%+v: skipped %q, failed %q", c, w.skipped, w.failed)
		}
	}
}

func TestExamplesAreLeftOutWhereTheServerLacksWhatTheyNeed(t *testing.T) {
	skip := flag.Lookup("test.skip").Value
	before := skip.String()
	t.Cleanup(func() { _ = skip.Set(before) })
	if err := skip.Set("Asked"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MONGODB_URI", "mongodb://here")
	t.Setenv("MONGOLOCK_HAS", "ttl")
	testserver.SkipExamples("^ExampleHere$", "ttl")
	testserver.SkipExamples("^ExampleThere$", "atomic")
	testserver.SkipExamples("^ExampleAnywhere$", "mongodb")
	if skip.String() != "Asked|^ExampleThere$" {
		t.Errorf("skips %s", skip)
	}
}
