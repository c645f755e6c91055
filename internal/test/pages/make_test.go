package pages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// A new user's shell has no MONGODB_URI, and the recipes' shell stops at what is unset.
func TestMakeServeStartsAServerUnlessOneIsNamed(t *testing.T) {
	program, err := exec.LookPath("make")
	if err != nil {
		t.Skip("needs make")
	}
	devmongo := filepath.Join(t.TempDir(), "devmongo")
	require.NoError(t, os.WriteFile(devmongo, []byte("#!/bin/sh\necho \"called: $*\"\n"), 0o700)) //nolint:gosec // make runs it
	serve := func(env ...string) (string, error) {
		call := exec.CommandContext(t.Context(), program, "--no-print-directory", "serve", "PORT=4711", "DEVMONGO="+devmongo) //nolint:gosec // a path of the test's own
		call.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
		out, err := call.CombinedOutput()
		return string(out), err
	}
	out, err := serve()
	require.NoError(t, err, out)
	assert.Contains(t, out, "called: serve --port 4711\n")
	out, err = serve("MONGODB_URI=mongodb://db-1")
	assert.Error(t, err)
	assert.NotContains(t, out, "called")
}

// Bulk is a cost: what an importing program compiles grows only with the number on the page.
func TestTheNumberOfLinesThatAProgramCompilesIsTheOneOnThePage(t *testing.T) {
	program, err := exec.LookPath("make")
	if err != nil {
		t.Skip("needs make")
	}
	counted, err := exec.CommandContext(t.Context(), program, "--no-print-directory", "lines").Output()
	require.NoError(t, err)
	lines, err := strconv.Atoi(strings.TrimSpace(string(counted)))
	require.NoError(t, err)
	page, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	named := regexp.MustCompile(`compiles some ([0-9]+),([0-9]+) lines`).FindSubmatch(page)
	require.NotNil(t, named)
	onPage, err := strconv.Atoi(string(named[1]) + string(named[2]))
	require.NoError(t, err)
	assert.InDelta(t, onPage, lines, 100, "make lines")
}

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
