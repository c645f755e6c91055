package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")
	commandLine  = regexp.MustCompile(`(?m)^\$ (?:.*[;|] )?mongolock (.*)$`)
	inText       = regexp.MustCompile("`mongolock ([a-z][^`]*)`")
	argument     = regexp.MustCompile(`'[^']*'|\S+`)
)

// The commands on the pages are commands of this program, with flags that it has.
func TestTheCommandsOfThePagesAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../../docs/operations.md", "../../README.md", "../../docs/reference.md", "../mongolock-mcp/README.md", "../../docs/choosing.md", "README.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		var lines []string
		for _, block := range consoleBlock.FindAllStringSubmatch(string(text), -1) {
			for _, m := range commandLine.FindAllStringSubmatch(block[1], -1) {
				lines = append(lines, m[1])
			}
		}
		for _, m := range inText.FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, m[1])
		}
		if strings.Contains(page, "operations") {
			assert.Greater(t, len(lines), 10, "%s names too few: is it read rightly?", page)
		}
		for _, line := range lines {
			parses(t, page, line)
		}
	}
}

func parses(t *testing.T, page, line string) {
	t.Helper()
	var args []string
	for _, word := range argument.FindAllString(line, -1) {
		if word == "|" || strings.HasPrefix(word, "#") || word == "||" {
			break
		}
		end := strings.HasSuffix(word, ";")
		args = append(args, strings.Trim(strings.TrimSuffix(word, ";"), "'"))
		if end {
			break
		}
	}
	k, err := parser(&cli{}, io.Discard, io.Discard)
	require.NoError(t, err)
	known := false
	for _, c := range commands(k.Model) {
		known = known || len(args) > 0 && c.Name == args[0]
	}
	if !assert.True(t, known, "%s: mongolock %s", page, line) || len(args) == 1 {
		return // named, not typed
	}
	if args[1] == "--help" {
		return
	}
	_, err = k.Parse(args)
	assert.NoError(t, err, "%s: mongolock %s", page, line)
}

// The exit codes that the help lists are those that the program has.
func TestTheHelpListsEveryExitCode(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"64", "65", "66", "69", "70", "71", "72", "73", "74", "75", "76", "77", "78", "126", "127", "128+n"} {
		assert.Contains(t, exitHelp, "\n   "+code+" ", code)
	}
}
