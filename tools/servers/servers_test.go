package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePageIsDrawnFromTheRecordsOfRuns(t *testing.T) {
	root := filepath.Join("..", "..")
	records, err := load(filepath.Join(root, recordFile))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, pageFile))
	require.NoError(t, err)
	assert.Equal(t, page(records), string(text), "draw it again: go run ./tools/servers")
}

func TestAVersionThatDidNotRunSaysSoWithItsCommand(t *testing.T) {
	drawn := page([]record{
		{Server: "MongoDB 4.4", What: "chaos", OK: true, Source: "somebody's note", Shows: []string{"12 grants"}},
		{Server: "MongoDB 5.0", What: "tests", OK: true, Is: "5.0.9", Shows: []string{"tests: 9 passed"}},
	})
	assert.Contains(t, drawn, "| MongoDB 4.4 | chaos [1] | **held**: 12 grants |\n")
	assert.Contains(t, drawn, "\n[1] Recorded elsewhere: somebody's note.\n")
	assert.Contains(t, drawn, "| MongoDB 5.0.9 | tests | **held**: tests: 9 passed |\n")
	assert.Contains(t, drawn, "\nNot run yet by this repository's own command: `make versions VERSIONS=\"4.4 6.0 7.0 8.0 9.0\" D=10m`.\n", "all but the one that ran")
}

func TestFaultsAreCountedAndListsLeftToTheRecord(t *testing.T) {
	r := record{Server: "MongoDB 7.0", What: "chaos", Is: "7.0.1", On: "2026-11-22", Shows: []string{"12 grants (3 alone), map[a:1 b:2], 4 events", "1 × link cut", "6 × reply lost"}}
	assert.Equal(t, "| MongoDB 7.0.1 | chaos, 2026-11-22 | **failed**: 12 grants, 4 events; 2 kinds of fault |\n", row(r, 0))
}

func TestOnlyTheRecordsOfNewRunsAreReplaced(t *testing.T) {
	records := []record{{Server: "MongoDB 4.4", What: "chaos", Source: "a note"}, {Server: "MongoDB 4.4", What: "tests", Is: "old"}}
	records = replace(records, record{Server: "MongoDB 4.4", What: "chaos", Is: "new"})
	records = replace(records, record{Server: "MongoDB 4.4", What: "tests", Is: "new"})
	require.Len(t, records, 3)
	assert.Equal(t, "a note", records[0].Source)
	assert.Equal(t, "new", records[1].Is)
}

func TestTheSummaryOfAStepSaysWhatItShowed(t *testing.T) {
	said := `building
✓  x (1s)
✖  y (2s)
=== FAIL: y TestA (0.00s)
DONE 8 tests, 2 skipped, 1 failure in 3s
on docker these were skipped, for want of:
  router             2  run by: MONGODB_URI=mongodb://… make test, with a mongos
tests: 5 passed, 1 failed, 2 skipped
    set_linux_test.go:64: 1m0s: 178 grants
--- PASS: TestNoChaosOnASetBreaksAPromise (63.95s)
`
	assert.Equal(t, []string{
		"✖  y (2s)",
		"=== FAIL: y TestA (0.00s)",
		"DONE 8 tests, 2 skipped, 1 failure in 3s",
		"on docker these were skipped, for want of:",
		"router             2  run by: MONGODB_URI=mongodb://… make test, with a mongos",
		"tests: 5 passed, 1 failed, 2 skipped",
		"1m0s: 178 grants",
	}, summary(strings.NewReader(said)))
}

// A stand-in for devmongo and docker shows which commands are run, and that a step that fails is kept as such.
func TestEachStepRunsOnTheVersionsImage(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("bin", 0o700))
	log := filepath.Join(dir, "log")
	require.NoError(t, os.WriteFile("bin/devmongo-light", []byte("#!/bin/sh\necho devmongo \"$@\" >>"+log+`
case "$*" in
*--version) echo docker 7.0.14 ;;
*OnASet*) echo '    set_linux_test.go:64: two live leases'; exit 1 ;;
*) echo 'tests: 3 passed, 0 failed, 0 skipped' ;;
esac
`), 0o700)) //nolint:gosec // a program
	require.NoError(t, os.WriteFile("docker", []byte("#!/bin/sh\necho docker \"$@\" >>"+log+"\ncat >>"+log+"\n"), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+":/usr/bin:/bin")

	records := runAll("7.0", 90)
	require.Len(t, records, 3)
	for i, what := range steps {
		assert.Equal(t, what, records[i].What)
		assert.Equal(t, "7.0.14", records[i].Is)
		assert.Equal(t, what != "chaos on a set", records[i].OK, what)
	}
	assert.Equal(t, []string{"two live leases", "exit status 1"}, records[2].Shows)
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Contains(t, string(text), "docker build --build-arg VERSION=7.0 --tag mongolock-mongo:7.0 -\n")
	assert.Equal(t, 4, strings.Count(string(text), "--kind docker --image mongolock-mongo:7.0 --members 1"))

	require.NoError(t, os.WriteFile("docker", []byte("#!/bin/sh\nexit 1\n"), 0o700)) //nolint:gosec // a program
	assert.Equal(t, "mongo:7.0", imageFor("7.0"))
}
