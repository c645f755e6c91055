// Command tryout tries whether a MongoDB deployment, or what calls itself one, can carry locks. `make try
// URI=…` runs it under `devmongo exec`, which has asked the server what it has. It runs the contract of stores
// and the claims of the library against the server, and prints a verdict.
//
// Its exit code is 0 if the server can carry locks, 1 if it cannot, and 2 if that was not shown.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// trials are the tests that are run, with what each shows.
var trials = []trial{
	{"./store/mongostore", "TestTheStoreKeepsItsContract", "the contract of stores, on documents of our own"},
	{"./internal/test/system", "TestEveryClaimHoldsOnAServer", "what a lease promises, with several clients"},
	{"./doclock", "TestTheStoreKeepsTheContractOfAllStores", "the contract of stores, inside documents of yours"},
}

type trial struct{ pkg, test, shows string }

func main() {
	server := serverFrom(os.Getenv)
	if server.uri == "" {
		fmt.Fprintln(os.Stderr, "tryout: there is no server; use it as: make try URI=mongodb://…")
		os.Exit(exitNotShown)
	}
	server.introduce(os.Stdout)
	var outcomes []outcome
	for _, t := range trials {
		o, err := t.run()
		if err != nil {
			fmt.Fprintln(os.Stderr, "tryout:", err)
			os.Exit(exitNotShown)
		}
		o.print(os.Stdout)
		outcomes = append(outcomes, o)
	}
	os.Exit(conclude(os.Stdout, server, outcomes))
}

// An outcome is that of one trial.
type outcome struct {
	trial
	passed  int
	failed  []string          // names of claims
	because map[string]string // what the first message of each said
	skipped map[string]string // claims, and why
	said    []string          // the last lines of one that could not be run
}

// run runs the trial's test and counts its claims.
func (t trial) run() (outcome, error) {
	cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout", "20m", "-run", "^"+t.test+"$", t.pkg)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	o, err := t.read(out)
	ended := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err == nil && ended != nil && !errors.As(ended, &exit) {
		err = ended
	}
	if err == nil && ended != nil && len(o.failed) == 0 && o.passed > 0 {
		o.failed = []string{t.test} // it ended in another way than by a claim
	}
	return o, err
}

// read reads the events of `go test -json`. A claim is a test without tests in it.
func (t trial) read(from io.Reader) (outcome, error) {
	o := outcome{trial: t, skipped: map[string]string{}, because: map[string]string{}}
	ended := map[string]string{}
	words := map[string][]string{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			o.said = append(o.said, lines.Text())
			continue
		}
		switch e.Action {
		case "output", "build-output":
			words[e.Test] = append(words[e.Test], strings.TrimSpace(e.Output))
		case "pass", "fail", "skip":
			if e.Test != "" {
				ended[e.Test] = e.Action
			}
		}
	}
	o.said = append(o.said, words[""]...)
	inner := map[string]bool{}
	for test := range ended {
		for i, c := range test {
			if c == '/' {
				inner[test[:i]] = true
			}
		}
	}
	for test, how := range ended {
		name := strings.TrimPrefix(test, t.test+"/")
		switch {
		case inner[test]:
		case how == "pass":
			o.passed++
		case how == "fail":
			o.failed = append(o.failed, name)
			o.because[name] = why(words[test])
		default:
			o.skipped[name] = why(words[test])
		}
	}
	return o, lines.Err()
}

// why finds what a test said first: "file_test.go:12: needs atomic: …", or the error of an assertion
// with its message.
func why(words []string) string {
	var first []string
	for _, w := range words {
		if _, said, ok := strings.Cut(w, ".go:"); ok && len(first) == 0 {
			if _, reason, ok := strings.Cut(said, ": "); ok && reason != "" {
				return reason
			}
		}
		for _, title := range []string{"Error:", "Messages:"} {
			if said, ok := strings.CutPrefix(w, title); ok && len(first) < 2 {
				first = append(first, strings.TrimSpace(said))
			}
		}
	}
	if len(first) == 0 {
		return "no reason given"
	}
	return strings.Join(first, ": ")
}
