package pages_test

import (
	"fmt"
	"os"
	"testing"
)

// The tests name files as the pages do, from the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
