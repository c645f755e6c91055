package fence_test

import (
	"os"
	"testing"

	"github.com/mongolock/mongolock/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.SkipExamples("^Example", "mongodb")
	testserver.SkipExamples("^ExampleUpdateOptions$", "expressions")
	os.Exit(m.Run())
}
