package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A report is what is known of a run so far.
type report struct {
	out     io.Writer
	getenv  func(string) string
	began   time.Time
	running map[string]time.Time // packages, and since when
	said    map[test]*strings.Builder
	counts  map[string]*count // by package

	packages, passed, failed, skipped int
	broken                            []string            // packages that failed
	reasons                           map[string]int      // of skips
	failures                          []test              // in their order
	builds                            map[string][]string // what the compiler said, by import path
}

type test struct{ pkg, name string }

type count struct{ passed, failed, skipped int }

func newReport(out io.Writer, getenv func(string) string) *report {
	return &report{
		out: out, getenv: getenv, began: time.Now(),
		running: make(map[string]time.Time), said: make(map[test]*strings.Builder), counts: make(map[string]*count),
		reasons: make(map[string]int), builds: make(map[string][]string),
	}
}

func (r *report) print(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

// server names the server of this run.
func (r *report) server() string {
	switch kind := r.getenv("MONGOLOCK_KIND"); {
	case kind != "":
		return "on " + kind
	case r.getenv("MONGODB_URI") != "":
		return "on the server of MONGODB_URI"
	}
	return "without a server"
}

func (r *report) event(e event) (said bool) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "start":
		r.running[e.Package] = time.Now()
		r.counts[e.Package] = &count{}
	case "output":
		r.keep(t, e.Output)
	case "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	case "build-fail":
		r.print("%s", strings.Join(r.builds[e.ImportPath], ""))
		return true
	case "pass", "fail", "skip":
		if e.Test == "" {
			return r.end(e)
		}
		r.ended(t, e.Action)
	}
	return false
}

// keep stores what a test prints until it is known how the test ends.
func (r *report) keep(t test, output string) {
	b := r.said[t]
	if b == nil {
		b = new(strings.Builder)
		r.said[t] = b
	}
	b.WriteString(output)
}

func (r *report) ended(t test, how string) {
	c := r.counts[t.pkg]
	if c == nil {
		c = &count{}
		r.counts[t.pkg] = c
	}
	said := r.said[t]
	switch how {
	case "pass":
		c.passed++
	case "fail":
		c.failed++
		r.failures = append(r.failures, t)
		return // printed with its package
	case "skip":
		c.skipped++
		r.reasons[reason(said)]++
	}
	delete(r.said, t)
}

var (
	// place stands before what a test says: "    file_test.go:12: ".
	place = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)$`)
	needs = regexp.MustCompile(`^needs (\S+?)[,:]`)
)

// reason returns why a test was skipped, from what it said.
func reason(said *strings.Builder) string {
	if said == nil {
		return "no reason given"
	}
	for line := range strings.SplitSeq(said.String(), "\n") {
		if m := place.FindStringSubmatch(line); m != nil {
			if n := needs.FindStringSubmatch(m[1]); n != nil {
				return n[1]
			}
			return m[1]
		}
	}
	return "no reason given"
}

// end prints the line of a package that has ended.
func (r *report) end(e event) bool {
	c := r.counts[e.Package]
	if c == nil {
		c = &count{}
	}
	delete(r.running, e.Package)
	r.passed, r.failed, r.skipped = r.passed+c.passed, r.failed+c.failed, r.skipped+c.skipped
	pkg := r.said[test{e.Package, ""}]
	delete(r.said, test{e.Package, ""})
	switch e.Action {
	case "skip": // no test files
		return false
	case "fail":
		r.broken = append(r.broken, e.Package)
		r.packages++
		r.printFailures(e.Package, pkg)
		r.print("FAIL %6.1f s  %s  %d failed, %d passed%s\n", e.Elapsed, short(e.Package), c.failed, c.passed, alsoSkipped(c.skipped))
	default:
		r.packages++
		cached := ""
		if pkg != nil && strings.Contains(pkg.String(), "(cached)") {
			cached = " (cached)"
		}
		r.print("ok   %6.1f s  %s  %d passed%s%s\n", e.Elapsed, short(e.Package), c.passed, alsoSkipped(c.skipped), cached)
	}
	return true
}

func alsoSkipped(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d skipped", n)
}

// printFailures prints all that the failed tests of a package said, and what the package said
// outside any test: a panic, a race in a goroutine, a TestMain.
func (r *report) printFailures(pkg string, outside *strings.Builder) {
	for t := range r.said { // a test that never ended, as its process died
		if t.pkg == pkg && !slices.Contains(r.failures, t) {
			r.failures = append(r.failures, t)
		}
	}
	for _, t := range r.failures {
		if b := r.said[t]; t.pkg == pkg && b != nil {
			r.print("%s", b.String())
			delete(r.said, t)
		}
	}
	if outside != nil {
		r.print("%s", outside.String())
	}
}

const module = "github.com/mongolock/mongolock"

// short returns a package's path below the module, as `go test` takes it.
func short(pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.Replace(pkg, module+"/", "./", 1)
}

// sayWhatRuns breaks a silence.
func (r *report) sayWhatRuns() {
	if len(r.running) == 0 {
		r.print("…    %6.1f s  still building\n", time.Since(r.began).Seconds())
		return
	}
	longest := slices.MinFunc(slices.Collect(maps.Keys(r.running)), func(a, b string) int {
		return r.running[a].Compare(r.running[b])
	})
	r.print("…    %6.1f s  running: %d packages, the longest %s\n", time.Since(r.began).Seconds(), len(r.running), short(longest))
}

// summarize says at the end what was shown and what was not.
func (r *report) summarize() {
	for pkg := range r.running { // the process of go test died
		r.broken = append(r.broken, pkg)
		r.printFailures(pkg, r.said[test{pkg, ""}])
	}
	r.print("\n%d packages %s in %s\n", r.packages, r.server(), time.Since(r.began).Round(time.Second))
	if len(r.broken) > 0 {
		slices.Sort(r.broken)
		var names []string
		for _, pkg := range r.broken {
			names = append(names, short(pkg))
		}
		r.print("failed: %s\n", strings.Join(names, " "))
	}
	if len(r.reasons) > 0 {
		r.print("skipped, for want of:\n")
		for _, why := range slices.SortedFunc(maps.Keys(r.reasons), func(a, b string) int {
			return cmp.Or(cmp.Compare(r.reasons[b], r.reasons[a]), cmp.Compare(a, b))
		}) {
			r.print("  %-15s %4d  %s\n", why, r.reasons[why], r.remedy(why))
		}
	}
	r.print("tests: %d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}

// remedy returns the command that runs what was skipped. It never names the one that was run.
func (r *report) remedy(want string) string {
	switch strings.TrimLeft(want, "!") {
	case "mongodb":
		return "run by: make test"
	case "atomic", "operationtime", "retryable", "ttl", "transactions", "stepdown", "process", "crash", "expressions", "roles", "apistrict", "capped":
		if r.getenv("MONGOLOCK_KIND") == "ferretdb" {
			return "run by: make server test KIND=secantus   (builds that server, once)"
		}
		return "run by: make test KIND=secantus, or a mongod on PATH"
	case "timeseries", "v44", "v50", "v60", "v70", "v80", "now":
		return "run by: MONGODB_URI=mongodb://… make test, with such a server"
	case "router":
		return "run by: MONGODB_URI=mongodb://… make test, with a mongos"
	case "set":
		return "run by: make test, with a mongod on PATH, or make versions, with Docker"
	case "clocks":
		return "run by: apt-get install faketime, and a set"
	case "versions":
		return "run by: make versions, with Docker"
	case "litmus":
		return "run by: apt-get install litmus && make test-adapters"
	case "chromium":
		return "run by: apt-get install chromium && make test-play"
	}
	return ""
}
