package doclock

import (
	"flag"
	"fmt"
	"os"
	"testing"
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
	switch {
	case !can("mongodb"):
		skip("^Example", "mongodb")
	case !can("transactions"):
		skip("^ExampleDocument_SaveAndRelease$", "transactions")
	}
	os.Exit(m.Run())
}

// skip leaves out examples, which have no Skip of their own, and names what they
// lack. What MONGOLOCK_REQUIRE lists the tests insist on.
func skip(examples, lack string) {
	fmt.Fprintf(os.Stderr, "doclock: examples need %s: skipping %s\n", lack, examples)
	pattern := flag.Lookup("test.skip").Value
	if by := pattern.String(); by != "" {
		examples = by + "|" + examples
	}
	if err := pattern.Set(examples); err != nil {
		panic(err)
	}
}
