package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// The exit codes.
const (
	exitCan      = 0
	exitCannot   = 1
	exitNotShown = 2
)

// A server is what `devmongo exec` has found out about it.
type server struct {
	uri, version string
	has          []string
}

func serverFrom(getenv func(string) string) server {
	return server{
		uri:     getenv("MONGODB_URI"),
		version: cmp.Or(getenv("MONGOLOCK_VERSION"), "of no known version"),
		has:     strings.FieldsFunc(getenv("MONGOLOCK_HAS"), func(r rune) bool { return r == ',' }),
	}
}

// lacks are the capabilities that a deployment can do without, and what that costs.
var lacks = []struct{ capability, costs string }{
	{"retryable", "a write whose reply is lost is not sent again by the driver: more calls fail as unknown, and clean-ups are repeated"},
	{"operationtime", "a grant takes one command more, which draws its token"},
	{"capped", "waiters in other processes poll, once a second in the end"},
	{"ttl", "what crashed holders leave blocks nobody, and stays until somebody removes it"},
	{"transactions", "nothing of the lock needs them; fenced writes and saves of documents inside one cannot be had"},
}

func (s server) introduce(out io.Writer) {
	fmt.Fprintf(out, "The server says that it is MongoDB %s. It has: %s.\n", s.version, strings.Join(s.has, ", "))
	for _, l := range lacks {
		if !slices.Contains(s.has, l.capability) {
			fmt.Fprintf(out, "It lacks %s: %s.\n", l.capability, l.costs)
		}
	}
	fmt.Fprint(out, "\nWhat is tried writes to collections of its own in the database mongolock_test, and drops them.\n\n")
}

func (o outcome) print(out io.Writer) {
	fmt.Fprintf(out, "%-55s %3d claims hold", o.shows, o.passed)
	if len(o.failed) > 0 {
		fmt.Fprintf(out, ", %d do not", len(o.failed))
	}
	if len(o.skipped) > 0 {
		fmt.Fprintf(out, ", %d were not tried", len(o.skipped))
	}
	fmt.Fprintln(out)
	slices.Sort(o.failed)
	for _, name := range o.failed {
		fmt.Fprintf(out, "  does not hold: %s\n    %s\n    go test %s -count=1 -v -run '^%s$'\n", name, o.because[name], o.pkg, strings.ReplaceAll(pathOf(o.test, name), "/", "$/^"))
	}
	reasons := map[string]int{}
	for _, reason := range o.skipped {
		reasons[reason]++
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(out, "  not tried, %d: %s\n", reasons[reason], reason)
	}
}

func pathOf(test, name string) string {
	if test == name {
		return test
	}
	return test + "/" + name
}

// conclude prints the verdict and returns the exit code.
func conclude(out io.Writer, s server, outcomes []outcome) int {
	held, failed := 0, 0
	for _, o := range outcomes {
		held += o.passed
		failed += len(o.failed)
		if o.passed+len(o.failed) == 0 {
			fmt.Fprintf(out, "\nVerdict: NOT SHOWN. Of %s nothing ran:\n  %s\n", o.shows, strings.Join(o.said, "\n  "))
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
