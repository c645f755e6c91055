package traps

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page has every trap of the list, at the level that doctor gives it, and no other.
func TestThePageHasEveryTrapAtItsLevel(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	levels := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\| (\\w+) \\|").FindAllStringSubmatch(string(text), -1) {
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
