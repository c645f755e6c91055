package mongolock_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMakeListsEveryTargetThatHasAText(t *testing.T) {
	program, err := exec.LookPath("make")
	if err != nil {
		t.Skip("needs make")
	}
	listed, err := exec.CommandContext(t.Context(), program, "--no-print-directory", "help").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(listed)) {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 81, "%s", line)
	}
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	for _, target := range regexp.MustCompile(`(?m)^([\w-]+):.*##(.*)$`).FindAllStringSubmatch(string(makefile), -1) {
		group, text, _ := strings.Cut(target[2], ": ")
		assert.Contains(t, []string{" use", " test", " develop"}, group, "the group of %s", target[1])
		assert.Regexp(t, `(?m)^  make `+target[1]+` +`+regexp.QuoteMeta(text)+`$`, string(listed))
	}
}
