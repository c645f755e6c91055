// Command servers runs the tests, chaos and chaos on a set against versions of MongoDB, each in Docker, and
// keeps what came of it in docs/servers.json. docs/servers.md is drawn from that file and from nothing else:
// what did not run is not in it.
//
//	servers -for 10m 4.4 5.0     runs these two, and draws the page
//	servers                      draws the page
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
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
			fmt.Fprintf(os.Stdout, "%s, %s: %s\n", r.Server, r.What, verdict(r))
			records = replace(records, r)
			if !r.OK {
				failed = append(failed, r.Server+", "+r.What)
			}
			if err := store(recordFile, records); err != nil { // at once: a later one may be cut short
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

func store(file string, records []record) error {
	text, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // a file of the repository
}

// replace puts a record in the place of an earlier one of the same server and tests. Records
// from elsewhere stay.
func replace(records []record, r record) []record {
	for i, old := range records {
		if old.Server == r.Server && old.What == r.What && old.Source == "" {
			records[i] = r
			return records
		}
	}
	return append(records, r)
}
