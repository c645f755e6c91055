package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// The exit codes of a verdict.
const (
	exitCan      = 0
	exitCannot   = 1
	exitNotShown = 2
)

// trials are the tests that `make try` runs on a server, with what each shows.
var trials = []struct{ pkg, test, shows string }{
	{"./store/mongostore", "TestTheStoreKeepsItsContract", "the contract of stores, on documents of our own"},
	{"./internal/test/system", "TestEveryClaimHoldsOnAServer", "what a lease promises, with several clients"},
	{"./doclock", "TestTheStoreKeepsTheContractOfAllStores", "the contract of stores, inside documents of yours"},
}

// lacks are the capabilities that a deployment can do without, and what that costs.
var lacks = []struct{ capability, costs string }{
	{"retryable", "a write whose reply is lost is not sent again by the driver: more calls fail as unknown, and clean-ups are repeated"},
	{"operationtime", "a grant takes one command more, which draws its token"},
	{"capped", "waiters in other processes poll, once a second in the end"},
	{"ttl", "what crashed holders leave blocks nobody, and stays until somebody removes it"},
	{"transactions", "nothing of the lock needs them; fenced writes and saves of documents inside one cannot be had"},
}

// A server is what `devmongo exec` has found out about it.
type server struct {
	version string
	has     []string
}

func serverFrom(getenv func(string) string) server {
	return server{
		version: cmp.Or(getenv("MONGOLOCK_VERSION"), "of no known version"),
		has:     strings.FieldsFunc(getenv("MONGOLOCK_HAS"), func(r rune) bool { return r == ',' }),
	}
}

// conclude prints what each trial showed on the server, and a verdict. It returns the exit code.
func conclude(out io.Writer, s server, all []result, outside []string) int {
	fmt.Fprintf(out, "The server says that it is MongoDB %s. It has: %s.\n", s.version, strings.Join(s.has, ", "))
	for _, l := range lacks {
		if !slices.Contains(s.has, l.capability) {
			fmt.Fprintf(out, "It lacks %s: %s.\n", l.capability, l.costs)
		}
	}
	fmt.Fprintln(out)
	held, failed := 0, 0
	for _, t := range trials {
		passed, broken := 0, 0
		var report strings.Builder
		skipped := make(map[string]int)
		for _, r := range all {
			whole := r.test == "" && strings.HasSuffix(r.pkg, t.pkg[1:])
			if !whole && (strings.Split(r.test, "/")[0] != t.test || hasInner(all, r)) {
				continue
			}
			switch r.how {
			case "pass":
				passed++
			case "fail":
				broken++
				fmt.Fprintf(&report, "  does not hold: %s\n    %s\n    go test %s -count=1 -v -run '^%s$'\n",
					cmp.Or(strings.TrimPrefix(r.test, t.test+"/"), t.test), why(r.said), t.pkg, strings.ReplaceAll(cmp.Or(r.test, t.test), "/", "$/^"))
			default:
				skipped[why(r.said)]++
			}
		}
		fmt.Fprintf(out, "%-55s %3d claims hold, %d do not\n%s", t.shows, passed, broken, report.String())
		for _, reason := range slices.Sorted(maps.Keys(skipped)) {
			fmt.Fprintf(out, "  not tried, %d: %s\n", skipped[reason], reason)
		}
		held, failed = held+passed, failed+broken
		if passed == 0 && (broken == 0 || strings.Contains(strings.Join(outside, "\n"), "[build failed]")) {
			fmt.Fprintf(out, "\nVerdict: NOT SHOWN. Of %s nothing ran:\n  %s\n", t.shows, strings.Join(outside, "\n  "))
			return exitNotShown
		}
	}
	switch {
	case failed > 0:
		fmt.Fprintf(out, "\nVerdict: NO. %d claims do not hold on this server. Do not lock on it until each of them is understood:\n"+
			"run the commands above with MONGODB_URI set. A bound of time that a distant server missed shows in the message;\n"+
			"anything else is a promise that cannot be kept there.\n", failed)
		return exitCannot
	case !slices.Contains(s.has, "atomic"):
		fmt.Fprintf(out, "\nVerdict: NOT SHOWN. %d claims hold, but none with several clients at once: nobody has shown that of several\n"+
			"conditional updates of one document exactly one matches there. Use it for development, with one process.\n", held)
		return exitNotShown
	}
	fmt.Fprintf(out, "\nVerdict: YES, as far as a client can see. %d claims hold, with several clients at once too. A failover was not tried:\n"+
		"that what a majority acknowledged outlives one is the server's promise. `mongolock doctor` looks at its settings.\n", held)
	return exitCan
}

// hasInner reports whether a test has tests in it: those are the claims then.
func hasInner(all []result, of result) bool {
	return slices.ContainsFunc(all, func(r result) bool { return r.pkg == of.pkg && strings.HasPrefix(r.test, of.test+"/") })
}
