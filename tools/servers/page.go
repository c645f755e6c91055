package main

import (
	"fmt"
	"slices"
	"strings"
)

// page draws docs/servers.md.
func page(records []record) string {
	var s strings.Builder
	s.WriteString(head)
	s.WriteString("| server | " + strings.Join(steps, " | ") + " |\n|---|" + strings.Repeat("---|", len(steps)) + "\n")
	servers := serversOf(records)
	for _, name := range servers {
		s.WriteString("| " + name)
		for _, step := range steps {
			s.WriteString(" | " + cell(records, name, step))
		}
		s.WriteString(" |\n")
	}
	s.WriteString("\nEach badge shows the last nightly run.\n\n")
	for _, v := range planned {
		fmt.Fprintf(&s, "![MongoDB %s](https://img.shields.io/endpoint?url=https://raw.githubusercontent.com/mongolock/mongolock/badges/mongodb-%s.json)\n", v, v)
	}
	for _, name := range servers {
		s.WriteString("\n## " + name + "\n")
		ran := false
		for _, r := range records {
			if r.Server == name {
				ran = true
				s.WriteString(entry(r))
			}
		}
		if version, ok := strings.CutPrefix(name, "MongoDB "); ok && !ranHere(records, name) {
			if ran {
				s.WriteString("\nBy this repository's own command: not run yet.\n")
			} else {
				s.WriteString("\nNot run yet.\n")
			}
			s.WriteString("\n```\nmake versions VERSIONS=" + version + " D=10m\n```\n")
		}
	}
	return s.String()
}

// steps are the columns of the table.
var steps = []string{"tests", "chaos", "chaos on a set"}

// serversOf returns the planned versions and then all others, in their order.
func serversOf(records []record) (names []string) {
	for _, v := range planned {
		names = append(names, "MongoDB "+v)
	}
	for _, r := range records {
		if !slices.Contains(names, r.Server) {
			names = append(names, r.Server)
		}
	}
	return names
}

func ranHere(records []record, name string) bool {
	return slices.ContainsFunc(records, func(r record) bool { return r.Server == name && r.Source == "" })
}

func cell(records []record, name, step string) string {
	for _, r := range slices.Backward(records) {
		if r.Server != name || r.What != step {
			continue
		}
		by := ""
		if r.Source != "" {
			by = ", recorded elsewhere"
		}
		return verdict(r) + by
	}
	return "not run yet"
}

func verdict(r record) string {
	if r.OK {
		return "held"
	}
	return "failed"
}

func entry(r record) string {
	var s strings.Builder
	fmt.Fprintf(&s, "\n**%s**, %s", r.What, verdict(r))
	if r.Is != "" {
		fmt.Fprintf(&s, ", on %s", r.Is)
	}
	if r.On != "" {
		fmt.Fprintf(&s, ", %s", r.On)
	}
	if r.Source != "" {
		fmt.Fprintf(&s, ". Recorded elsewhere: %s", r.Source)
	}
	s.WriteString(".\n\n```\n")
	if r.Command != "" {
		s.WriteString("$ " + r.Command + "\n")
	}
	for _, line := range r.Shows {
		s.WriteString(line + "\n")
	}
	s.WriteString("```\n")
	return s.String()
}

const head = `# Servers that the tests ran on

` + "`make versions`" + ` runs everything again and draws this page from [servers.json](servers.json). That file contains only what really ran.
[operations.md §14](operations.md#14-servers) says what each server is good for, and [compatible.md](compatible.md) what is known of
compatible services.

| column | meaning |
|---|---|
| tests | the tests of ` + "`make test`" + ` |
| chaos | real processes use one server while it is broken |
| chaos on a set | the same with a replica set of three members whose clocks differ ([guarantees.md](guarantees.md#chaos-on-a-set)) |

*Held* means that no test failed, and that the checks of the recorded history found no violation. If a server lacks a feature, the tests that need it
are skipped by name and counted. *Recorded elsewhere* means that ` + "`make versions`" + ` did
not produce the result: its source is named below. *Not run yet* means that no result is recorded. (` + "`make test`" + ` runs on SecantusDB all the
time, and records nothing here.)

`
