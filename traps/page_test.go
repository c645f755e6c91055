package traps

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page has every trap of the list, at the level that doctor gives it, and no other.
func TestThePageHasEveryTrapAtItsLevel(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/reference.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "## Known traps")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	levels := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\| (\\w+) \\|").FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			levels[name[1]] = row[2]
		}
	}
	want := map[string]string{}
	for _, l := range list {
		want[l.Name] = "warning"
		if l.Grave {
			want[l.Name] = "failure"
		}
	}
	assert.Equal(t, want, levels)
}
