// Command servers runs the tests, chaos and chaos on a set against versions of MongoDB, each in Docker, and
// keeps the results in docs/servers.json. docs/servers.md is drawn from that file and from nothing else:
// what did not run is not in it.
//
//	servers -for 10m 7.0 8.0     runs these two, and draws the page
//	servers                      draws the page
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	recordFile = "docs/servers.json"
	pageFile   = "docs/servers.md"
)

// planned are the versions that the project means to run on.
var planned = []string{"4.4", "5.0", "6.0", "7.0", "8.0", "9.0"}

// A record is one thing that ran on one server.
type record struct {
	Server  string   `json:"server"`           // "MongoDB 7.0", "SecantusDB"
	Is      string   `json:"is"`               // what it reports, "7.0.14"
	What    string   `json:"what"`             // "tests", "chaos", "chaos on a set"
	Command string   `json:"command"`          // that repeats it
	On      string   `json:"on"`               // the day, UTC
	OK      bool     `json:"ok"`               // nothing failed
	Shows   []string `json:"shows"`            // its summary, in its words
	Source  string   `json:"source,omitempty"` // where it is recorded, if this program did not run it
}

func (r record) verdict() string {
	if r.OK {
		return "held"
	}
	return "failed"
}

func main() {
	long := flag.Duration("for", time.Minute, "how long chaos lasts, and chaos on a set")
	flag.Parse()
	if err := work(flag.Args(), *long); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

func work(versions []string, long time.Duration) error {
	records, err := load(recordFile)
	if err != nil {
		return err
	}
	var failed []string
	for _, v := range versions {
		if !slices.Contains(planned, v) {
			return fmt.Errorf("version %q is none of %v", v, planned)
		}
		for _, r := range runAll(v, long) {
			fmt.Fprintf(os.Stdout, "%s, %s: %s\n", r.Server, r.What, r.verdict())
			if !r.OK {
				failed = append(failed, r.Server+", "+r.What)
			}
			records = replace(records, r)
			text, err := json.MarshalIndent(records, "", "  ")
			if err != nil {
				return err
			}
			if err := os.WriteFile(recordFile, append(text, '\n'), 0o644); err != nil { //nolint:gosec // a file of the repository
				return err
			}
		}
	}
	if err := os.WriteFile(pageFile, []byte(page(records)), 0o644); err != nil { //nolint:gosec // a page of the repository
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %v; %s says what", failed, pageFile)
	}
	return nil
}

func load(file string) (records []record, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &records)
	}
	return records, err
}

// replace puts a record in the place of an earlier one of the same server and tests. Records
// from elsewhere stay.
func replace(records []record, r record) []record {
	i := slices.IndexFunc(records, func(old record) bool {
		return old.Server == r.Server && old.What == r.What && old.Source == ""
	})
	if i < 0 {
		return append(records, r)
	}
	records[i] = r
	return records
}

// steps are what is run, and the columns of the table.
var steps = []string{"tests", "chaos", "chaos on a set"}

// runAll runs each step on one version of MongoDB, and returns the results.
func runAll(version string, long time.Duration) (records []record) {
	image := imageFor(version)
	devmongo := []string{"bin/devmongo-light", "exec", "--kind", "docker", "--image", image, "--members", "1", "--"}
	reported, _ := exec.Command("bin/devmongo-light", "serve", "--kind", "docker", "--image", image, "--members", "1", "--version").Output()
	chaos := "go test ./internal/test/chaos -v -count=1 -timeout 0 -chaos.for " + long.String() + " -run "
	commands := map[string][]string{
		"tests": append(strings.Fields("go tool -modfile=tools/test/go.mod gotestsum --format pkgname-and-test-fails --hide-summary skipped --jsonfile bin/tests.json"),
			"--post-run-command", "bin/testreport bin/tests.json", "--", "-p", "2", "-count=1", "-timeout", "20m", "./..."),
		"chaos":          strings.Fields(chaos + "^TestNoChaosBreaksAPromise$"),
		"chaos on a set": strings.Fields(chaos + "^TestNoChaosOnASetBreaksAPromise$"),
	}
	for _, what := range steps {
		argv := slices.Concat(devmongo, commands[what])
		fmt.Fprintf(os.Stdout, "MongoDB %s, %s: %s\n", version, what, strings.Join(argv, " "))
		shows, ok := run(argv)
		records = append(records, record{
			Server: "MongoDB " + version, Is: strings.TrimPrefix(strings.TrimSpace(string(reported)), "docker "),
			What: what, OK: ok, Shows: shows,
			Command: fmt.Sprintf("make versions VERSIONS=%s D=%v", version, long),
			On:      time.Now().UTC().Format(time.DateOnly),
		})
	}
	return records
}

// imageFor builds an image of that version with libfaketime in it, so that its members' clocks can be apart.
// Where that fails it is the version's own, and clocks are skipped by name.
func imageFor(version string) string {
	name := "mongolock-mongo:" + version
	cmd := exec.Command("docker", "build", "--build-arg", "VERSION="+version, "--tag", name, "-")
	cmd.Stdin = strings.NewReader(dockerfile)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "servers: no image with libfaketime: %v\n", err)
		return "mongo:" + version
	}
	return name
}

// dockerfile leaves out MongoDB's own packages' list, whose key has run out in the images of old versions.
const dockerfile = `ARG VERSION
FROM mongo:${VERSION}
RUN rm -f /etc/apt/sources.list.d/mongodb* && apt-get update && apt-get install -y --no-install-recommends faketime && rm -rf /var/lib/apt/lists/*
`

// run runs a step, shows what it prints, and returns the lines that sum it up.
func run(argv []string) (shows []string, ok bool) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &said), os.Stderr
	err := cmd.Run()
	shows = summary(&said)
	if err != nil {
		shows = append(shows, err.Error())
	}
	return shows, err == nil
}

// sums are the lines that say what a step showed: what chaos logs ("    set_linux_test.go:64: 1m0s: 178 grants"),
// gotestsum's of what failed and of how many ran, and testreport's.
var sums = regexp.MustCompile(`^(?:\s+\w+_linux_test\.go:\d+: (.*)|(✖.*|=== FAIL.*|DONE .*|on \S+ these were skipped.*|  \S+ +\d+  .*|tests: .*))$`)

func summary(said io.Reader) (shows []string) {
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := sums.FindStringSubmatch(lines.Text()); m != nil {
			shows = append(shows, strings.TrimSpace(m[1]+m[2]))
		}
	}
	return shows
}

// page draws docs/servers.md.
func page(records []record) string {
	var s strings.Builder
	s.WriteString(head)
	s.WriteString("| server | " + strings.Join(steps, " | ") + " |\n|---|" + strings.Repeat("---|", len(steps)) + "\n")
	var names []string
	for _, v := range planned {
		names = append(names, "MongoDB "+v)
	}
	for _, r := range records {
		if !slices.Contains(names, r.Server) {
			names = append(names, r.Server)
		}
	}
	for _, name := range names {
		s.WriteString("| " + name)
		for _, step := range steps {
			s.WriteString(" | " + cell(records, name, step))
		}
		s.WriteString(" |\n")
	}
	for _, name := range names {
		s.WriteString("\n## " + name + "\n")
		ran, here := false, false
		for _, r := range records {
			if r.Server == name {
				ran, here = true, here || r.Source == ""
				s.WriteString(entry(r))
			}
		}
		if version, ok := strings.CutPrefix(name, "MongoDB "); ok && !here {
			s.WriteString(map[bool]string{true: "\nBy this repository's own command: not run yet.\n", false: "\nNot run yet.\n"}[ran])
			s.WriteString("\n```\nmake versions VERSIONS=" + version + " D=10m\n```\n")
		}
	}
	return s.String()
}

func cell(records []record, name, step string) string {
	for _, r := range slices.Backward(records) {
		switch {
		case r.Server != name || r.What != step:
		case r.Source != "":
			return r.verdict() + ", recorded elsewhere"
		default:
			return r.verdict()
		}
	}
	return "not run yet"
}

func entry(r record) string {
	var s strings.Builder
	s.WriteString("\n**" + r.What + "**, " + r.verdict())
	for _, part := range []struct{ before, text string }{{", on ", r.Is}, {", ", r.On}, {". Recorded elsewhere: ", r.Source}} {
		if part.text != "" {
			s.WriteString(part.before + part.text)
		}
	}
	s.WriteString(".\n\n```\n")
	if r.Command != "" {
		s.WriteString("$ " + r.Command + "\n")
	}
	return s.String() + strings.Join(append(slices.Clone(r.Shows), "```\n"), "\n")
}

const head = `# Servers that the tests ran on

` + "`make versions`" + ` runs everything again and draws this page from [servers.json](servers.json). That file contains only what really ran.
[operations.md §14](operations.md#14-servers) says what each server is good for, and [compatible.md](compatible.md) what is known of
compatible services.

| column | meaning |
|---|---|
| tests | the tests of ` + "`make test`" + ` |
| chaos | real processes use one server while it is broken |
| chaos on a set | the same with a replica set of three members whose clocks differ ([guarantees.md](internals/evidence.md#chaos-on-a-set)) |

*Held* means that no test failed, and that the checks of the recorded history found no violation. If a server lacks a feature, the tests that need it
are skipped by name and counted. *Recorded elsewhere* means that ` + "`make versions`" + ` did
not produce the result: its source is named below. *Not run yet* means that no result is recorded. (` + "`make test`" + ` runs on SecantusDB all the
time, and records nothing here.)

`
