package main

import (
	"fmt"
	"slices"
	"strings"
)

// notCovered is what none of the tests shows.
var notCovered = []string{
	"MongoDB itself: the workflow `servers` has not run yet. What did run there was run by reviewers, at the commits that the table names.",
	"Atlas, Amazon DocumentDB and Azure Cosmos DB: never tried.",
	"A mongos in front of real shards: a reviewer tried it once, on 5.0.7. The tests have one in memory.",
	"The clocks of several machines: chaos has one machine, with members whose clocks are set apart by libfaketime. The simulation has clocks that differ, drift and step.",
	"A member that loses what a majority acknowledged: a broken disk, a forced reconfiguration, a restored backup. Exclusion assumes that it does not happen; tokens are the guard.",
	"Processes under a load of days: no run of this library was longer than its longest in the first table.",
	"Bulks and drift in the specification; [evidence](evidence.md) has which promise is shown by what, cell by cell.",
}

// page draws docs/internals/record.md.
func (r *record) page() string {
	var b strings.Builder
	fmt.Fprint(&b, "# The record\n\n",
		"`go run ./internal/test/record` writes this page from the files beside it; a test fails if it was changed by hand.\n",
		"[Evidence](evidence.md) says what each kind of run can show.\n\n")
	r.drawRuns(&b)
	r.drawFaults(&b)
	r.drawControls(&b)
	fmt.Fprint(&b, "## Not covered\n\n")
	for _, n := range notCovered {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	return b.String()
}

func (r *record) drawRuns(b *strings.Builder) {
	fmt.Fprint(b, "## Runs\n\n",
		"*Held* means that the command succeeded. `go run ./internal/test/record run WHAT -- COMMAND` adds a row.\n\n",
		"| commit | date | what | Go, driver | server | took | seeds | grants | faults | violations | result | command |\n",
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, e := range r.runs {
		fmt.Fprintf(b, "| %s | %s | %s | %s, %s | %s | %s | %s | %s | %s | %s | %s | `%s` |\n", e.Commit, e.On, e.What, e.Go, e.Driver, e.Server,
			e.Took, or(e.Seeds), or(e.Grants), or(e.Faults), e.Violations, result(e.OK, e.Shows), e.Command)
	}
	fmt.Fprint(b, "\nOn servers, from [servers.json](../servers.json) and beside it. What was recorded elsewhere has its source:\n\n",
		"| server | date | what | result | command |\n|---|---|---|---|---|\n")
	var sources []string
	for _, s := range r.servers {
		what := s.What
		if s.Source != "" {
			i := slices.Index(sources, s.Source)
			if i < 0 {
				i, sources = len(sources), append(sources, s.Source)
			}
			what += fmt.Sprintf(" [%d]", i+1)
		}
		product, _, _ := strings.Cut(s.Server, " ")
		fmt.Fprintf(b, "| %s %s | %s | %s | %s | `%s` |\n", product, s.Is, or(s.On), what, result(s.OK, s.Shows), s.Command)
	}
	for i, s := range sources {
		fmt.Fprintf(b, "\n[%d] %s%s.\n", i+1, strings.ToUpper(s[:1]), s[1:])
	}
	fmt.Fprintln(b)
}

func (r *record) drawFaults(b *strings.Builder) {
	live, gone := 0, 0
	for _, f := range r.faults {
		if f.Gone == "" {
			live++
		} else {
			gone++
		}
	}
	fmt.Fprintf(b, "## Faults found\n\n"+
		"All were found before the first release. Each of these %d is put back by a patch of [faults](../../internal/test/record/faults),\n"+
		"and `make reproduce` fails if its test no longer finds it. To see one: `make reproduce FAULT=NAME`.\n\n"+
		"| what a user could have seen | introduced in | found by | fixed in | command that shows it, with the patch | last reproduced |\n|---|---|---|---|---|---|\n", live)
	for _, f := range r.faults {
		if f.Gone == "" {
			shown := "never"
			if at, ok := r.reproduced[f.Name]; ok {
				shown = at.On + ", " + at.Commit
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s: `%s` | %s |\n", f.Saw, f.Introduced, f.Found, f.Fixed, f.Name, f.command(), shown)
		}
	}
	fmt.Fprintf(b, "\n%d have no place in today's code:\n\n| what a user could have seen | introduced in | found by | fixed in | why it cannot be put back |\n|---|---|---|---|---|\n", gone)
	for _, f := range r.faults {
		if f.Gone != "" {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", f.Saw, f.Introduced, f.Found, f.Fixed, f.Gone)
		}
	}
	fmt.Fprintln(b)
}

func (r *record) drawControls(b *strings.Builder) {
	fmt.Fprint(b, "## Controls\n\n",
		"Each row is a safety that is taken out. The seed is the first in which the simulation notices; 2,000 are allowed.\n",
		"`make simulate-controls | go run ./internal/test/record controls` adds a search. The searches:")
	for i, s := range r.searches {
		if i > 0 {
			fmt.Fprint(b, ",")
		}
		fmt.Fprintf(b, " %s on %s", s.Commit, s.On)
	}
	fmt.Fprint(b, ".\n\n| safety | first seed, last search | median of the last five |\n|---|---|---|\n")
	for _, name := range names(r.searches) {
		last, seeds := "not noticed", lastSeeds(r.searches, name)
		if at := r.searches[len(r.searches)-1].Seeds[name]; at > 0 {
			last = fmt.Sprint(at)
		}
		fmt.Fprintf(b, "| %s | %s | %d |\n", name, last, median(seeds))
	}
	fmt.Fprintln(b)
}

// lastSeeds are those of the last five searches that noticed a control.
func lastSeeds(searches []search, name string) (seeds []uint64) {
	for _, s := range searches[max(0, len(searches)-5):] {
		if at := s.Seeds[name]; at > 0 {
			seeds = append(seeds, at)
		}
	}
	return seeds
}

// median is the lower of the two in the middle, of an even number.
func median(seeds []uint64) uint64 {
	if len(seeds) == 0 {
		return 0
	}
	seeds = slices.Sorted(slices.Values(seeds))
	return seeds[(len(seeds)-1)/2]
}

func result(ok bool, shows []string) string {
	word := "failed"
	if ok {
		word = "held"
	}
	if len(shows) == 0 {
		return "**" + word + "**"
	}
	return "**" + word + "**: " + strings.Join(shows, "; ")
}

func or(text string) string {
	if text == "" {
		return "–"
	}
	return text
}
