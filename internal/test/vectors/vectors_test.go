package vectors

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var write = flag.Bool("vectors.write", false, "write the vectors, instead of comparing them")

var folder = filepath.Join("..", "..", "..", "docs", "internals", "vectors")

// A release of this library must understand what another one wrote, and so must a client in another
// language: whoever changes a command changes the vectors, and reads docs/internals/format.md.
func TestTheVectorsAreWhatTheLibrarySends(t *testing.T) {
	var names []string
	for _, of := range states() {
		names = append(names, of.name+".json")
		file, is := filepath.Join(folder, of.name+".json"), text(made(t, of), "")+"\n"
		if *write {
			require.NoError(t, os.WriteFile(file, []byte(is), 0o644)) //nolint:gosec // a file of the repository
			continue
		}
		was, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, strings.ReplaceAll(string(was), "\r\n", "\n"), is, "%s: if that is meant, `make vectors`", of.name)
	}
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	var there []string
	for _, f := range files {
		there = append(there, f.Name())
	}
	assert.ElementsMatch(t, names, there)
}
