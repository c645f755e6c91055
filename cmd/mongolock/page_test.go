package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	fencedBlock = regexp.MustCompile("(?ms)^```(?:console)?\n(.*?)^```")
	commandLine = regexp.MustCompile(`(?m)^(?:\$ (?:.*[;|&] )?|[-\d*/,]+(?: [-\d*/,]+){4} +)(?:/[a-z/]+/)?mongolock (.*)$`) // typed, or in a crontab
	inText      = regexp.MustCompile("`mongolock ([a-z][^`]*)`")
	argument    = regexp.MustCompile(`'[^']*'|\S+`)
)

// The commands on the pages are commands of this program, with flags that it has.
func TestTheCommandsOfThePagesAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	seen := 0
	require.NoError(t, filepath.WalkDir("../..", func(page string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && page != "../.." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(page) != ".md":
			return nil
		}
		text, err := os.ReadFile(page)
		for _, line := range commandsOn(string(text)) {
			seen++
			parses(t, page, line)
		}
		return err
	}))
	assert.Greater(t, seen, 40, "commands: are the pages read rightly?")
}

func commandsOn(page string) (lines []string) {
	for _, block := range fencedBlock.FindAllStringSubmatch(page, -1) {
		for _, m := range commandLine.FindAllStringSubmatch(block[1], -1) {
			lines = append(lines, m[1])
		}
	}
	for _, m := range inText.FindAllStringSubmatch(page, -1) {
		lines = append(lines, m[1])
	}
	return lines
}

func TestControlCommandsOfEachFormAreFoundOnAPage(t *testing.T) {
	t.Parallel()
	page := "```console\n$ make cli && mongolock one\n$ mongolock two | tee log\n```\n\n```\n*/5 3 * * 1-5  mongolock three\n```\n\nand `mongolock four`\n"
	assert.Equal(t, []string{"one", "two | tee log", "three", "four"}, commandsOn(page))
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
	for _, c := range k.Model.Children {
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
