package doclock

import (
	"flag"
	"os"
	"testing"

	"github.com/mongolock/mongolock/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(childColl) != "" {
		workUntilKilled()
		return
	}
	flag.Parse()
	// They wait for time to pass more than they compute; but the embedded server takes
	// one command at a time.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue && can("atomic") {
		_ = p.Value.Set("8")
	}
	testserver.SkipExamples("^Example", "mongodb")
	testserver.SkipExamples("^ExampleDocument_SaveAndRelease$", "transactions")
	os.Exit(m.Run())
}
