// Command testreport reads the events of `go test -json` and says what gotestsum does not: what
// this machine could not test, for want of what, with the command that tests it.
//
//	testreport FILE             after a run of gotestsum with --jsonfile FILE
//	testreport -verdict FILE    after a run on a server: can it carry locks?
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	args := os.Args[1:]
	verdict := len(args) == 2 && args[0] == "-verdict"
	if len(args) != 1 && !verdict {
		fmt.Fprintln(os.Stderr, "usage: testreport [-verdict] FILE")
		os.Exit(exitNotShown)
	}
	file, err := os.Open(args[len(args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(exitNotShown)
	}
	all, outside := read(file)
	if verdict {
		os.Exit(conclude(os.Stdout, serverFrom(os.Getenv), all, outside))
	}
	summarize(os.Stdout, os.Getenv, all)
}

// A result is how a test ended; of a package that failed outside its tests, the test is "".
type result struct {
	pkg, test, how string // "pass", "fail", "skip"
	said           []string
}

// read returns how all tests ended, and what was said outside any.
func read(from io.Reader) (all []result, outside []string) {
	type key struct{ pkg, test string }
	said, failed := make(map[key][]string), make(map[string]bool)
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		var e struct{ Action, Package, Test, Output string }
		k := key{}
		if json.Unmarshal(line, &e) == nil {
			k = key{e.Package, e.Test}
		} else if len(line) > 0 {
			outside = append(outside, strings.TrimSpace(string(line)))
		}
		switch e.Action {
		case "output", "build-output":
			said[k] = append(said[k], strings.TrimSpace(e.Output))
			if e.Test == "" {
				outside = append(outside, strings.TrimSpace(e.Output))
			}
		case "pass", "fail", "skip":
			if e.Test != "" || e.Action == "fail" && !failed[e.Package] {
				all = append(all, result{e.Package, e.Test, e.Action, said[k]})
			}
			failed[e.Package] = failed[e.Package] || e.Action == "fail"
			delete(said, k)
		}
		if err != nil {
			return all, outside
		}
	}
}

// summarize prints what was skipped, and the counts.
func summarize(out io.Writer, getenv func(string) string, all []result) {
	counts, wants := make(map[string]int), make(map[string]int)
	for _, r := range all {
		if counts[r.how]++; r.how == "skip" {
			wants[want(why(r.said))]++
		}
	}
	server := cmp.Or(getenv("MONGOLOCK_KIND"), "no server")
	if len(wants) > 0 {
		fmt.Fprintf(out, "\non %s these were skipped, for want of:\n", server)
	}
	for _, w := range slices.SortedFunc(maps.Keys(wants), func(a, b string) int {
		return cmp.Or(wants[b]-wants[a], strings.Compare(a, b))
	}) {
		fmt.Fprintf(out, "  %-15s %4d  %s\n", w, wants[w], remedy(w, server))
	}
	fmt.Fprintf(out, "tests: %d passed, %d failed, %d skipped\n", counts["pass"], counts["fail"], counts["skip"])
}

var needs = regexp.MustCompile(`^needs (\S+?)[,:]`)

// want returns the capability that a test said it needs, or else all of its reason.
func want(reason string) string {
	if m := needs.FindStringSubmatch(reason); m != nil {
		return m[1]
	}
	return reason
}

// why returns what a test said first: "file_test.go:12: needs atomic: …", or the error of an assertion with
// its message.
func why(said []string) string {
	var first []string
	for _, s := range said {
		if _, after, ok := strings.Cut(s, ".go:"); ok && len(first) == 0 {
			if _, reason, ok := strings.Cut(after, ": "); ok && reason != "" {
				return reason
			}
		}
		for _, title := range []string{"Error:", "Messages:"} {
			if text, ok := strings.CutPrefix(s, title); ok && len(first) < 2 {
				first = append(first, strings.TrimSpace(text))
			}
		}
	}
	return cmp.Or(strings.Join(first, ": "), "no reason given")
}

// remedies are the commands that run what was skipped for want of something.
var remedies = []struct{ wants, command string }{
	{"mongodb", "make test"},
	{"atomic operationtime retryable ttl transactions stepdown process crash expressions roles apistrict capped", "make test KIND=secantus, or a mongod on PATH"},
	{"timeseries v44 v50 v60 v70 v80 now", "MONGODB_URI=mongodb://… make test, with such a server"},
	{"router", "MONGODB_URI=mongodb://… make test, with a mongos"},
	{"set", "make test, with a mongod on PATH, or make chaos WITH=set KIND=docker, with Docker"},
	{"clocks", "apt-get install faketime, and a set"},
	{"versions", "make chaos WITH=set KIND=docker, with Docker"},
	{"litmus", "apt-get install litmus && make modules ONLY=adapters/webdav"},
	{"python", "make chaos WITH=python"},
	{"virtual", "make test itself, in virtual time: store/memstore"},
}

// remedy returns such a command, but never the one that was run.
func remedy(want, server string) string {
	for _, r := range remedies {
		if slices.Contains(strings.Fields(r.wants), strings.TrimLeft(want, "!")) {
			if server == "ferretdb" && strings.Contains(r.command, "KIND=secantus") {
				return "run by: make server test KIND=secantus   (builds that server, once)"
			}
			return "run by: " + r.command
		}
	}
	return ""
}
