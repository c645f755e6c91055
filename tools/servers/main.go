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

// page draws docs/servers.md: a row for each record, its source as a note below the table, and the versions
// that did not run, with the command that runs them.
func page(records []record) string {
	var s strings.Builder
	s.WriteString(head)
	s.WriteString("| server | what ran | result |\n|---|---|---|\n")
	var names, sources []string
	for _, v := range planned {
		names = append(names, "MongoDB "+v)
	}
	for _, r := range records {
		if !slices.Contains(names, r.Server) {
			names = append(names, r.Server)
		}
	}
	var waiting []string
	for _, name := range names {
		here := false
		for _, r := range records {
			if r.Server == name {
				here = here || r.Source == ""
				if r.Source != "" && !slices.Contains(sources, r.Source) {
					sources = append(sources, r.Source)
				}
				s.WriteString(row(r, slices.Index(sources, r.Source)+1))
			}
		}
		if version, ok := strings.CutPrefix(name, "MongoDB "); ok && !here {
			waiting = append(waiting, version)
		}
	}
	s.WriteString("\n")
	for i, source := range sources {
		fmt.Fprintf(&s, "[%d] Recorded elsewhere: %s.\n\n", i+1, source)
	}
	if len(waiting) > 0 {
		s.WriteString("Not run yet by this repository's own command: `make versions VERSIONS=\"" + strings.Join(waiting, " ") + "\" D=10m`.\n")
	}
	return s.String() + tail
}

// row is what the page says of a record. Faults are counted, each of which has a line of its own in the record;
// lists within a line are left to the record.
func row(r record, source int) string {
	name := r.Server
	if r.Is != "" {
		name = strings.Fields(r.Server)[0] + " " + r.Is
	}
	var shows []string
	faults := 0
	for _, line := range r.Shows {
		if fault.MatchString(line) {
			faults++
		} else {
			shows = append(shows, aList.ReplaceAllString(line, ""))
		}
	}
	if faults > 0 {
		shows = append(shows, fmt.Sprintf("%d kinds of fault", faults))
	}
	what := r.What
	if r.On != "" {
		what += ", " + r.On
	}
	if source > 0 {
		what += fmt.Sprintf(" [%d]", source)
	}
	return "| " + name + " | " + what + " | **" + r.verdict() + "**: " + strings.Join(shows, "; ") + " |\n"
}

var (
	fault = regexp.MustCompile(`^\d+ × `)
	aList = regexp.MustCompile(`,? ?(map\[[^\]]*\]|\([^)]*\d[^)]*\))`)
)

const head = `# Servers

[SUPPORT](../SUPPORT.md) has the supported versions; this page, what each server is good for and what ran on it.

| server | status |
|---|---|
| MongoDB 4.4 to 9.0, replica set; Atlas | written for it, run as below; Atlas not tried |
| MongoDB, standalone | for development: a grant takes one more command, clean-ups are repeated |
| MongoDB, sharded cluster | an unsharded collection, or one sharded by ` + "`_id`" + `. This repository's tests have a mongos in memory |
| SecantusDB 0.5.3-beta.196 | the tests run on it all the time. One node, with ` + "`--sync-on-commit`" + `; itself a beta |
| FerretDB v1.24.2 | for development, behind [devmongo](../devmongo/README.md)'s gate, one command at a time; without the gate several takeovers of one lock can win |
| FerretDB v2, Amazon DocumentDB, Azure Cosmos DB | not tried, not supported: [below](#other-servers) |

## What ran

` + "`make versions`" + ` draws this from [servers.json](servers.json), which has the commands. *Held*: no promise was broken. *Chaos* is real
processes on servers that are killed, stopped and cut off meanwhile.

`

const tail = `
## Other servers

` + "`make try URI='mongodb://…'`" + ` tries your server, in collections of its own in the database ` + "`mongolock_test`" + `, and
prints a verdict. It tries no failover. This is what a server needs (without the first four no lock is possible), and what
two services' own documents say:

| need | Amazon DocumentDB | Azure Cosmos DB, request units |
|---|---|---|
| of concurrent conditional updates one matches | [each statement is atomic](https://docs.aws.amazon.com/documentdb/latest/developerguide/functional-differences.html); no more | [findAndModify](https://learn.microsoft.com/en-us/azure/cosmos-db/mongodb/feature-support-42); no more |
| one place accepts writes | [one primary](https://docs.aws.amazon.com/documentdb/latest/devguide/how-it-works.html) | not with several write regions, where [the last write wins](https://learn.microsoft.com/azure/cosmos-db/conflict-resolution-policies): two may hold a key |
| a majority's writes are never lost | [six copies](https://docs.aws.amazon.com/documentdb/latest/devguide/how-it-works.html) | by consistency level |
| the primary shows its last write | yes | by consistency level |
| retryable writes; else clean-ups are repeated | [from 8.0.2](https://docs.aws.amazon.com/documentdb/latest/developerguide/retryable-writes.html) | [switch on](https://learn.microsoft.com/azure/cosmos-db/mongodb/how-to-configure-capabilities) |
| ` + "`operationTime`, `electionId`" + `; else one more command, later takeovers | not stated | not stated |
| capped collections; else waiters poll | [no](https://docs.aws.amazon.com/documentdb/latest/devguide/mongo-apis.html) | [no](https://docs.azure.cn/cosmos-db/mongodb/feature-support-40) |
| a partial TTL index; else remove leftovers yourself | [5.0](https://docs.aws.amazon.com/documentdb/latest/developerguide/partial-index.html) | [only on ` + "`_ts`" + `](https://learn.microsoft.com/azure/cosmos-db/mongodb-time-to-live), not by a lock's end |
`
