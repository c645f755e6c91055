package testserver_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// A recorder is a test that records how it would have ended, and goes on.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()                        {}
func (r *recorder) Skipf(format string, a ...any)  { r.skipped = fmt.Sprintf(format, a...) }
func (r *recorder) Fatalf(format string, a ...any) { r.failed = fmt.Sprintf(format, a...) }

func TestATestRunsOrSkipsByNameOrFailsIfTheCapabilityIsRequired(t *testing.T) {
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
		var r recorder
		testserver.URI(&r, "atomic")
		assert.Equal(t, c.skips, r.skipped != "", "%+v: skipped %q", c, r.skipped)
		assert.Equal(t, c.fails, r.failed != "", "%+v: failed %q", c, r.failed)
	}
}

func TestATestMayNeedThatTheServerLacksACapability(t *testing.T) {
	t.Setenv("MONGODB_URI", "mongodb://here")
	for has, need := range map[string]string{"ttl,router": "!router", "router": "!mongodb", "ttl": "router"} {
		t.Setenv("MONGOLOCK_HAS", has)
		var r recorder
		testserver.URI(&r, need)
		assert.Contains(t, r.skipped, "needs "+need+":", "the server has %s", has)
	}
	t.Setenv("MONGOLOCK_HAS", "ttl,routers")
	var r recorder
	assert.Equal(t, "mongodb://here", testserver.URI(&r, "!router", "ttl"))
	assert.Empty(t, r.skipped)
}

func TestExamplesAreLeftOutWhereTheServerLacksWhatTheyNeed(t *testing.T) {
	skip := flag.Lookup("test.skip").Value
	before := skip.String()
	t.Cleanup(func() { _ = skip.Set(before) })
	require.NoError(t, skip.Set("Asked"))
	t.Setenv("MONGODB_URI", "mongodb://here")
	t.Setenv("MONGOLOCK_HAS", "ttl")
	testserver.SkipExamples("^ExampleHere$", "ttl")
	testserver.SkipExamples("^ExampleThere$", "atomic")
	testserver.SkipExamples("^ExampleAnywhere$", "mongodb")
	assert.Equal(t, "Asked|^ExampleThere$", skip.String())
}
