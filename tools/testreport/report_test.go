package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// told returns what the report prints of these events, on a server of a kind.
func told(t *testing.T, kind, events string) string {
	t.Helper()
	var out bytes.Buffer
	r := newReport(&out, func(name string) string { return map[string]string{"MONGOLOCK_KIND": kind}[name] })
	require.NoError(t, r.follow(strings.NewReader(events)))
	r.summarize()
	return out.String()
}

const mixed = `{"Action":"start","Package":"github.com/mongolock/mongolock/fence"}
{"Action":"output","Package":"github.com/mongolock/mongolock/fence","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"github.com/mongolock/mongolock/fence","Test":"TestA","Output":"    a_test.go:12: the log of a test that passes\n"}
{"Action":"pass","Package":"github.com/mongolock/mongolock/fence","Test":"TestA","Elapsed":0.1}
{"Action":"output","Package":"github.com/mongolock/mongolock/fence","Test":"TestB","Output":"    own.go:27: needs transactions, which ferretdb does not have\n"}
{"Action":"skip","Package":"github.com/mongolock/mongolock/fence","Test":"TestB","Elapsed":0}
{"Action":"output","Package":"github.com/mongolock/mongolock/fence","Output":"PASS\n"}
{"Action":"pass","Package":"github.com/mongolock/mongolock/fence","Elapsed":1.25}
`

const failing = `{"Action":"start","Package":"github.com/mongolock/mongolock"}
{"Action":"output","Package":"github.com/mongolock/mongolock","Test":"TestC","Output":"    c_test.go:3: two of them held it\n"}
{"Action":"output","Package":"github.com/mongolock/mongolock","Test":"TestC","Output":"--- FAIL: TestC (0.00s)\n"}
{"Action":"fail","Package":"github.com/mongolock/mongolock","Test":"TestC","Elapsed":0}
{"Action":"output","Package":"github.com/mongolock/mongolock","Output":"FAIL\n"}
{"Action":"fail","Package":"github.com/mongolock/mongolock","Elapsed":0.5}
`

func TestAPackageIsALineAndTheSummaryCountsIt(t *testing.T) {
	said := told(t, "ferretdb", mixed)
	assert.Contains(t, said, "ok      1.2 s  ./fence  1 passed, 1 skipped\n")
	assert.NotContains(t, said, "the log of a test that passes")
	assert.Contains(t, said, "1 packages on ferretdb in ")
	assert.True(t, strings.HasSuffix(said, "\ntests: 1 passed, 0 failed, 1 skipped\n"), said)
}

func TestASkipNamesWhatIsMissingAndACommandThatRunsIt(t *testing.T) {
	assert.Contains(t, told(t, "ferretdb", mixed), "transactions       1  run by: make server test KIND=secantus")
	assert.Contains(t, told(t, "", strings.ReplaceAll(mixed, "transactions", "mongodb")), "mongodb            1  run by: make test\n")
	assert.Contains(t, told(t, "secantus", strings.ReplaceAll(mixed, "needs transactions, which ferretdb does not have", "a reason of its own")),
		"a reason of its own    1  \n")
}

func TestAFailureIsPrintedWholeAndItsPackageIsNamedAtTheEnd(t *testing.T) {
	said := told(t, "secantus", mixed+failing)
	assert.Contains(t, said, "    c_test.go:3: two of them held it\n--- FAIL: TestC (0.00s)\n")
	assert.Contains(t, said, "FAIL    0.5 s  .  1 failed, 0 passed\n")
	assert.Contains(t, said, "failed: .\n")
	assert.Contains(t, said, "tests: 1 passed, 1 failed, 1 skipped\n")
}

func TestTheOutputOfATestWhoseProcessDiedIsPrinted(t *testing.T) {
	said := told(t, "secantus", `{"Action":"start","Package":"github.com/mongolock/mongolock"}
{"Action":"output","Package":"github.com/mongolock/mongolock","Test":"TestD","Output":"panic: out of paper\n"}
{"Action":"fail","Package":"github.com/mongolock/mongolock","Elapsed":0.5}
`)
	assert.Contains(t, said, "panic: out of paper\nFAIL")
}

func TestACompilersErrorIsPrinted(t *testing.T) {
	said := told(t, "", `{"ImportPath":"p [p.test]","Action":"build-output","Output":"./a.go:1:2: undefined: x\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","Elapsed":0}
`)
	assert.Contains(t, said, "./a.go:1:2: undefined: x\n")
	assert.Contains(t, said, "failed: p\n")
}

func TestTheCommandsExitCodeIsReturned(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0":           0,
		"exit 3":           3,
		`printf '%s' "$0"`: 1, // a test failed, though the command did not say so
		`echo 'flag provided but not defined'; false`: 1,
	} {
		var out bytes.Buffer
		code, err := run([]string{"sh", "-c", script, failing}, &out)
		require.NoError(t, err)
		assert.Equal(t, want, code, script)
		assert.Contains(t, out.String(), " failed, ", "the summary of %s", script)
	}
}

func TestOtherLinesOfGoTestArePassedOn(t *testing.T) {
	assert.Contains(t, told(t, "", "no required module provides package x\n"), "no required module provides package x\n")
}
