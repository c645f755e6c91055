package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A run is one that was long enough to be told of.
type run struct {
	moment
	What       string   `json:"what"` // simulation, chaos, specification …
	Command    string   `json:"command"`
	Go         string   `json:"go"`
	Driver     string   `json:"driver"`
	Server     string   `json:"server"` // and its topology
	Took       string   `json:"took"`
	Seeds      string   `json:"seeds,omitempty"`
	Grants     string   `json:"grants,omitempty"`
	Faults     string   `json:"faults,omitempty"`
	Violations string   `json:"violations"`
	OK         bool     `json:"ok"`
	Shows      []string `json:"shows,omitempty"` // what else its summary says
}

// A serverRun is one of docs/servers.json or of elsewhere.json: what
// others ran and that page has no room for.
type serverRun struct {
	Server  string   `json:"server"`
	Is      string   `json:"is"`
	What    string   `json:"what"`
	Command string   `json:"command"`
	On      string   `json:"on"`
	OK      bool     `json:"ok"`
	Shows   []string `json:"shows"`
	Source  string   `json:"source"`
}

// run runs a command, and keeps what it showed, whether it held or not.
func (r *record) run(ctx context.Context, what string, command []string) error {
	now, err := r.now(ctx)
	if err != nil {
		return err
	}
	driver, err := r.output(ctx, "go", "list", "-m", "-f", "{{.Version}}", "go.mongodb.org/mongo-driver/v2")
	if err != nil {
		return err
	}
	done := run{moment: now, What: what, Command: strings.Join(command, " "), Go: strings.TrimPrefix(runtime.Version(), "go"), Driver: driver}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, io.MultiWriter(os.Stdout, &out), io.MultiWriter(os.Stderr, &out)
	began := time.Now()
	failed := cmd.Run()
	done.Took, done.OK = time.Since(began).Round(time.Second).String(), failed == nil
	done.read(out.String())
	r.runs = append(r.runs, done)
	return errors.Join(failed, r.save("runs.json", r.runs))
}

var (
	simulated = regexp.MustCompile(`\bseeds=(\d+) commands=(\d+) (.*)`)
	stormed   = regexp.MustCompile(`: (\d+) grants, .*?(\d+) events(?:, faults map\[(.*)\])?`)
	modelled  = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed$`)
	using     = regexp.MustCompile(`devmongo: using (\w+)`)
	violated  = regexp.MustCompile(`(?m)^ +(?:\w+_test\.go:\d+: )+((?:seed \d+: )?[a-z ]+), at `)
	printedBy = regexp.MustCompile(`(?m)^ +\w+\.go:\d+: `)
)

// read finds in what was printed what the page tells of a run.
func (done *run) read(out string) {
	done.Server = "none: servers in memory, in virtual time"
	if m := using.FindStringSubmatch(out); m != nil {
		done.Server = map[string]string{"secantus": "SecantusDB, one member", "ferretdb": "FerretDB, one member", "mongod": "mongod, a set"}[m[1]]
	}
	if m := stormed.FindStringSubmatch(out); m != nil {
		done.Grants = m[1]
		done.Shows = append(done.Shows, m[2]+" events")
		if m[3] != "" {
			done.Faults = strconv.Itoa(strings.Count(m[3], ":")) + " kinds"
		}
	}
	if n := strings.Count(out, " × "); n > 0 && done.Faults == "" {
		done.Faults = strconv.Itoa(n) + " kinds"
	}
	seeds, commands, faults, hours := 0, 0, 0, 0
	for line := range lines(out) {
		if m := simulated.FindStringSubmatch(line); m != nil && printedBy.MatchString(line) {
			n, _ := strconv.Atoi(m[1])
			seeds += n
			for f := range strings.FieldsSeq(m[3]) {
				what, count, _ := strings.Cut(f, "=")
				n, _ := strconv.Atoi(count)
				switch what {
				case "hours":
					hours += n
				case "events", "local":
				default:
					faults += n
				}
			}
			n, _ = strconv.Atoi(m[2])
			commands += n
		}
	}
	if seeds > 0 {
		done.Seeds, done.Faults = strconv.Itoa(seeds), strconv.Itoa(faults)
		done.Shows = append(done.Shows, fmt.Sprintf("%d commands in %d simulated hours", commands, hours))
	}
	if m := modelled.FindStringSubmatch(out); m != nil {
		done.Server = "none: the specification"
		done.Shows = append(done.Shows, fmt.Sprintf("%s checks passed, %s failed", m[1], m[2]))
	}
	violations := violated.FindAllStringSubmatch(out, -1)
	if len(violations) > 0 {
		done.Shows = append(done.Shows, violations[0][1])
	}
	done.Violations = strconv.Itoa(len(violations))
}

func lines(text string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
			if !yield(s.Text()) {
				return
			}
		}
	}
}

// subjects are the simulations of other things than locks, by the names of their controls' tests.
var subjects = map[string]string{"PathLocks": "path locks: ", "Updates": "updates: "}

// firstSeeds returns the seed by which each control was noticed first.
func firstSeeds(in io.Reader) (map[string]uint64, error) {
	seeds, name := map[string]uint64{}, ""
	for s := bufio.NewScanner(in); s.Scan(); {
		if m := searched.FindStringSubmatch(s.Text()); m != nil {
			name = subjects[m[1]] + strings.ReplaceAll(m[2], "_", " ")
		} else if m := noticed.FindStringSubmatch(s.Text()); m != nil && name != "" {
			n, err := strconv.ParseUint(m[1], 10, 64)
			if err != nil {
				return nil, err
			}
			if seeds[name] == 0 {
				seeds[name] = n
			}
		}
	}
	if len(seeds) == 0 {
		return nil, errors.New("no control was searched for: make simulate-controls | record controls")
	}
	return seeds, nil
}
