package specpath

import (
	"flag"
	"slices"
	"strings"
	"testing"
)

var (
	folder = flag.String("spec.graphs", "", "the folder of the graphs, as `make spec-tests` gives it")
	only   = flag.String("spec.bounds", "", "only the graphs of these bounds, separated by commas")
)

// Graphs opens the graphs of some bounds, or skips the test if there are none.
func Graphs(t testing.TB, bounds ...string) (all []*Graph) {
	t.Helper()
	if *folder == "" {
		t.Skip("TLC makes the graphs: make spec-tests")
	}
	for _, name := range bounds {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), name) {
			continue
		}
		g, err := Open(*folder, name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	return all
}

// Finds reports whether a walk of one of the graphs finds a fault in the subject.
func Finds(t testing.TB, s Subject, graphs []*Graph) bool {
	t.Helper()
	for _, g := range graphs {
		r := Walk(t.Context(), g, s)
		if len(r.Failures) > 0 {
			return true
		}
	}
	return false
}
