package mongolock_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var goLine = regexp.MustCompile(`(?m)^go (1\.\d+)\.0$`)

// A new version of a dependency, or `go get`, raises the go line without a word. The linter
// then holds the code to that line (govet's stdversion).
func TestNoReleasedModuleNeedsANewerGoThanThePageSays(t *testing.T) {
	page := pages(t)[".github/SUPPORT.md"]
	oldest := regexp.MustCompile(`\| Go \| .*, now (1\.\d+) and 1\.\d+ \|`).FindStringSubmatch(page)
	require.NotNil(t, oldest, "the row about Go in SUPPORT.md")
	assert.Contains(t, pages(t)["README.md"], "with Go "+oldest[1]+" or later")
	found := 0
	for file, text := range filesEndingIn(t, "go.mod") {
		dir := filepath.ToSlash(filepath.Dir(file))
		if released := dir == "." || regexp.MustCompile(`^(adapters|cmd)/`).MatchString(dir); !released {
			continue
		}
		found++
		line := goLine.FindStringSubmatch(text)
		require.NotNil(t, line, "the go line of %s", file)
		assert.Equal(t, oldest[1], line[1], "the go line of %s", file)
	}
	assert.GreaterOrEqual(t, found, 7, "released modules")
}
