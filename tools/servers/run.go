package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// runAll runs everything on one version of MongoDB, and returns what came of each step.
func runAll(version string, long time.Duration) []record {
	name := imageFor(version)
	devmongo := []string{"bin/devmongo-light", "exec", "--kind", "docker", "--image", name, "--members", "1", "--"}
	is := reported(name)
	chaos := func(test string) []string {
		return append(devmongo, "go", "test", "./internal/test/chaos", "-run", "^"+test+"$", "-v", "-count=1", "-timeout", "0", "-chaos.for", long.String())
	}
	var records []record
	for _, step := range []struct {
		what string
		argv []string
	}{
		{"tests", append(devmongo, "bin/testreport", "go", "test", "-p", "2", "-count=1", "-timeout", "20m", "-json", "./...")},
		{"chaos", chaos("TestNoChaosBreaksAPromise")},
		{"chaos on a set", chaos("TestNoChaosOnASetBreaksAPromise")},
	} {
		fmt.Fprintf(os.Stdout, "MongoDB %s, %s: %s\n", version, step.what, strings.Join(step.argv, " "))
		shows, ok := run(step.argv)
		records = append(records, record{
			Server: "MongoDB " + version, Is: is, What: step.what, OK: ok, Shows: shows,
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

// reported asks a server of the image for its version.
func reported(image string) string {
	out, err := exec.Command("bin/devmongo-light", "serve", "--kind", "docker", "--image", image, "--members", "1", "--version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "docker ")
}

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

var (
	// ofChaos is a line that chaos logs: "    set_linux_test.go:64: 1m0s: 178 grants, …".
	ofChaos = regexp.MustCompile(`^\s+\w+_linux_test\.go:\d+: (.*)$`)
	// ofTests are testreport's summary: what failed, what was skipped for want of what, the counts.
	ofTests = regexp.MustCompile(`^(FAIL |failed: |skipped, for want of|  \S+ +\d+  |tests: )`)
)

// summary returns the lines of a step's output that say what it showed and what it left out.
func summary(said io.Reader) (shows []string) {
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := ofChaos.FindStringSubmatch(lines.Text()); m != nil {
			shows = append(shows, strings.TrimSpace(m[1]))
		} else if ofTests.MatchString(lines.Text()) {
			shows = append(shows, strings.TrimSpace(lines.Text()))
		}
	}
	return shows
}
