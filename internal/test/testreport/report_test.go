package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// told returns the summary of these events, on a server of a kind.
func told(kind, events string) string {
	var out bytes.Buffer
	all, _ := read(strings.NewReader(events))
	summarize(&out, func(name string) string { return map[string]string{"MONGOLOCK_KIND": kind}[name] }, all)
	return out.String()
}

const mixed = `{"Action":"start","Package":"p/fence"}
{"Action":"output","Package":"p/fence","Test":"TestA","Output":"    a_test.go:12: the log of a test that passes\n"}
{"Action":"pass","Package":"p/fence","Test":"TestA","Elapsed":0.1}
{"Action":"output","Package":"p/fence","Test":"TestB","Output":"    own.go:27: needs transactions, which ferretdb does not have\n"}
{"Action":"skip","Package":"p/fence","Test":"TestB","Elapsed":0}
{"Action":"pass","Package":"p/fence","Elapsed":1.25}
`

func TestTheLastLineCounts(t *testing.T) {
	const failing = `{"Action":"fail","Package":"p","Test":"TestC","Elapsed":0}` + "\n" + `{"Action":"fail","Package":"p","Elapsed":0.5}` + "\n"
	assert.True(t, strings.HasSuffix(told("ferretdb", mixed), "\ntests: 1 passed, 0 failed, 1 skipped\n"))
	assert.Equal(t, "tests: 0 passed, 1 failed, 0 skipped\n", told("", failing))
}

func TestAPackageThatFailsOutsideItsTestsIsCounted(t *testing.T) {
	assert.Contains(t, told("", `{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`+"\n"+`{"Action":"fail","Package":"p","Elapsed":0}`), " 0 passed, 1 failed,")
}

func TestASkipNamesWhatIsMissingAndACommandThatRunsIt(t *testing.T) {
	assert.Contains(t, told("ferretdb", mixed), "  transactions       1  run by: make server test KIND=secantus")
	assert.Contains(t, told("", strings.ReplaceAll(mixed, "transactions", "mongodb")), "  mongodb            1  run by: make test\n")
	assert.Contains(t, told("secantus", strings.ReplaceAll(mixed, "needs transactions, which ferretdb does not have", "a reason of its own")),
		"  a reason of its own    1  \n")
	assert.Contains(t, told("secantus", strings.ReplaceAll(mixed, "needs transactions, which ferretdb does not have", "needs virtual, as places get stale only in time")),
		"  virtual            1  run by: make test itself, in virtual time: store/memstore\n")
}

// Every capability that tests can ask for has a command that runs those tests.
func TestEveryCapabilityHasARemedy(t *testing.T) {
	known, err := os.ReadFile(filepath.Join("..", "..", "..", ".ci", "run"))
	require.NoError(t, err)
	_, list, ok := strings.Cut(string(known), "MONGOLOCK_REQUIRE=secantus,ferretdb,")
	require.True(t, ok, "the list of .ci/run")
	list, _, _ = strings.Cut(list, "\n")
	for w := range strings.SplitSeq(list, ",") {
		assert.NotEmpty(t, remedy(w, "ferretdb"), w)
	}
}

// events are what `go test -json` says of a trial with these claims; those of the others pass.
func events(claims map[string]string) string {
	var s strings.Builder
	for _, t := range trials[1:] {
		fmt.Fprintf(&s, `{"Action":"pass","Package":"m%s","Test":"%s"}`+"\n", t.pkg[1:], t.test)
	}
	test, how := trials[0].test, "pass"
	say := func(claim, format string, args ...any) {
		fmt.Fprintf(&s, `{"Package":"m/store/mongostore","Test":"`+test+claim+`",`+format+"}\n", args...)
	}
	for name, ended := range claims {
		if ended == "skip" {
			say("/"+name, `"Action":"output","Output":"    a_test.go:7: needs atomic: this server does not\n"`)
		}
		if ended == "fail" {
			how = "fail"
			for _, line := range []string{"    a_test.go:9: ", "        \tError:      \tNot equal", "        \tMessages:   \ttwo have it"} {
				say("/"+name, `"Action":"output","Output":%q`, line)
			}
		}
		say("/"+name, `"Action":%q`, ended)
	}
	say("", `"Action":%q`, how)
	fmt.Fprintf(&s, `{"Action":%q,"Package":"m/store/mongostore"}`+"\n", how)
	return s.String()
}

func TestTheVerdictFollowsFromTheClaims(t *testing.T) {
	const every = "atomic,retryable,operationtime,capped,ttl,transactions"
	for name, c := range map[string]struct {
		claims map[string]string
		has    string
		code   int
		says   []string
	}{
		"all hold":        {map[string]string{"A": "pass", "B/C": "pass", "B": "pass"}, every, exitCan, []string{"  2 claims hold", "Verdict: YES"}},
		"one does not":    {map[string]string{"A": "pass", "B/C": "fail", "B": "fail"}, every, exitCannot, []string{"Verdict: NO. 1 claims", "does not hold: B/C", "    Not equal: two have it\n", "KeepsItsContract$/^B$/^C$"}},
		"no contention":   {map[string]string{"A": "pass", "B": "skip"}, every[len("atomic,"):], exitNotShown, []string{"Verdict: NOT SHOWN", "not tried, 1: needs atomic: this server does not"}},
		"all are skipped": {map[string]string{"A": "skip"}, every, exitNotShown, []string{"nothing ran"}},
		"no capped":       {map[string]string{"A": "pass"}, "atomic", exitCan, []string{"It lacks capped: waiters", "It lacks retryable", "Verdict: YES"}},
	} {
		t.Run(name, func(t *testing.T) {
			all, outside := read(strings.NewReader(events(c.claims)))
			var out bytes.Buffer
			s := serverFrom(func(name string) string { return map[string]string{"MONGOLOCK_HAS": c.has}[name] })
			assert.Equal(t, c.code, conclude(&out, s, all, outside))
			for _, want := range c.says {
				assert.Contains(t, out.String(), want)
			}
		})
	}
}

func TestATestThatDoesNotCompileIsNoVerdict(t *testing.T) {
	all, outside := read(strings.NewReader("p.go:1: syntax error\n" + `{"Action":"output","Package":"m/store/mongostore","Output":"FAIL m/store/mongostore [build failed]\n"}` + "\n" +
		`{"Action":"fail","Package":"m/store/mongostore"}` + "\n"))
	var out bytes.Buffer
	assert.Equal(t, exitNotShown, conclude(&out, server{has: []string{"atomic"}}, all, outside))
	assert.Contains(t, out.String(), "syntax error")
}

// What `make try` runs is what the verdict is about.
func TestMakeRunsTheTrials(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "..", "Makefile"))
	require.NoError(t, err)
	for _, trial := range trials {
		assert.True(t, strings.Contains(string(makefile), trial.test), trial.test) //nolint:testifylint // which would print the Makefile
		assert.True(t, strings.Contains(string(makefile), trial.pkg), trial.pkg)   //nolint:testifylint // the same
	}
}
