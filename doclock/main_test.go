package doclock

import (
	"flag"
	"testing"

	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait for time to pass more than they compute.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("8")
	}
	testserver.SkipExamples("^Example", "mongodb")
	testserver.SkipExamples("^ExampleDocument_SaveAndRelease$", "transactions")
	testchild.Main(m, testchild.Roles{"worker": testchild.As(workUntilKilled)})
}
