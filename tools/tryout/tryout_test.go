package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// events are what `go test -json` says of a test with claims.
func events(claims map[string]string) string {
	var s strings.Builder
	for name, how := range claims {
		if how == "skip" {
			fmt.Fprintf(&s, `{"Action":"output","Test":"TestT/%s","Output":"    a_test.go:7: needs atomic: this server does not\n"}`+"\n", name)
		}
		if how == "fail" {
			for _, line := range []string{"    a_test.go:9: ", "        \tError:      \tNot equal", "        \tMessages:   \ttwo have it"} {
				fmt.Fprintf(&s, `{"Action":"output","Test":"TestT/%s","Output":%q}`+"\n", name, line)
			}
		}
		fmt.Fprintf(&s, `{"Action":%q,"Test":"TestT/%s"}`+"\n", how, name)
	}
	how := "pass"
	if strings.Contains(s.String(), `"fail"`) {
		how = "fail"
	}
	fmt.Fprintf(&s, `{"Action":%q,"Test":"TestT"}`+"\n"+`{"Action":%q}`+"\n", how, how)
	return s.String()
}

func TestTheVerdictFollowsFromTheClaims(t *testing.T) {
	all := []string{"atomic", "retryable", "operationtime", "capped", "ttl", "transactions"}
	for name, c := range map[string]struct {
		claims map[string]string
		has    []string
		code   int
		says   []string
	}{
		"all hold":        {map[string]string{"A": "pass", "B/C": "pass", "B": "pass"}, all, exitCan, []string{"  2 claims hold\n", "Verdict: YES"}},
		"one does not":    {map[string]string{"A": "pass", "B/C": "fail", "B": "fail"}, all, exitCannot, []string{"Verdict: NO. 1 claims", "does not hold: B/C", "    Not equal: two have it\n", "^TestT$/^B$/^C$"}},
		"no contention":   {map[string]string{"A": "pass", "B": "skip"}, all[1:], exitNotShown, []string{"Verdict: NOT SHOWN", "not tried, 1: needs atomic: this server does not"}},
		"all are skipped": {map[string]string{"A": "skip"}, all, exitNotShown, []string{"nothing ran"}},
		"no capped":       {map[string]string{"A": "pass"}, []string{"atomic"}, exitCan, []string{"It lacks capped: waiters", "It lacks retryable", "Verdict: YES"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := trial{"./p", "TestT", "the claims"}.read(strings.NewReader(events(c.claims)))
			require.NoError(t, err)
			var out bytes.Buffer
			s := server{uri: "mongodb://h", version: "8.0.1", has: c.has}
			s.introduce(&out)
			o.print(&out)
			assert.Equal(t, c.code, conclude(&out, s, []outcome{o}))
			for _, want := range c.says {
				assert.Contains(t, out.String(), want)
			}
		})
	}
}

func TestATestThatDoesNotCompileIsNoVerdict(t *testing.T) {
	o, err := trial{"./p", "TestT", "the claims"}.read(strings.NewReader("p.go:1: syntax error\n" + `{"Action":"fail"}` + "\n"))
	require.NoError(t, err)
	var out bytes.Buffer
	assert.Equal(t, exitNotShown, conclude(&out, server{has: []string{"atomic"}}, []outcome{o}))
	assert.Contains(t, out.String(), "syntax error")
}
