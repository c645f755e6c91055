package main

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// refinedBound is Lock within its bounds, each step of which must be one of Store.
var refinedBound = bound{
	with:       []string{"Lock", "Store"},
	config:     lockBound.config,
	properties: "Refined",
	values:     with(lockBound.values, map[string]string{"Barred": `"broken"`}),
}

// storeBound is Store with claims of one permit and of both, and their line.
var storeBound = bound{
	invariants: "Together Once Bounded Open",
	properties: "InTurn Heeded Kept",
	values:     with(graphBound.values, graphs["weights"]),
}

// numbered has numbers of permits that are set, less and more than claims name.
var numbered = with(graphs["number"], map[string]string{"Modes": `{"exclusive", "permits 2", "both of 2"}`})

var refined = []check{
	{name: "store: claims of one permit and of both", module: "Store"},
	{name: "store: mutant: each claim counts as one", module: "Store", finds: "Together",
		mutate: []mutation{{"Limit(m) > 0 /\\ Taken(k) + Weight(m) > Number(k, m)", "Limit(m) > 0 /\\ Cardinality(Alive(k)) >= Number(k, m)"}}},
	{name: "store: mutant: one permit is granted before both", module: "Store", finds: "InTurn",
		mutate: []mutation{{"ahead == Counting(k, Before(k.line, p), pass) IN", "ahead == SelectSeq(Counting(k, Before(k.line, p), pass), LAMBDA x : Weight(x.mode) <= Weight(m)) IN"}}},
	{name: "store: numbers of permits that are set", module: "Store", set: numbered},
	{name: "store: mutant: a claim heeds the number that it names", module: "Store", set: numbered, finds: "Heeded",
		mutate: []mutation{{"Limit(m) > 0 /\\ Taken(k) + Weight(m) > Number(k, m)", "Limit(m) > 0 /\\ Taken(k) + Weight(m) > Limit(m)"}}},
	{name: "store: mutant: a claim above the number keeps others out", module: "Store", set: numbered, finds: "Open",
		mutate: []mutation{{"Turn(k, m, p, pass) ==\n  LET ahead == Counting(k, ", "Turn(k, m, p, pass) ==\n  LET ahead == Counting([k EXCEPT !.set = 0], "}}},
	{name: "store: mutant: a lower number ends holders", module: "Store", set: numbered, finds: "Kept",
		mutate: []mutation{{"[k EXCEPT !.set = n]", "[(IF n > 0 /\\ Taken(k) > n THEN [Free EXCEPT !.line = k.line] ELSE k) EXCEPT !.set = n]"}}},
	{name: "store: what Lock does is what Store says", module: "LockStore"},
	{name: "store: the same with renewals and breaks", module: "LockStore", large: true,
		set: map[string]string{"Rows": `{"renew", "break"}`, "TTL": "3"}},
	{name: "store: the same with MinHold", module: "LockStore", set: map[string]string{"Rows": `{"min-hold"}`, "Barred": `"released"`, "MaxNow": "2"}},
	{name: "store: the same with readers", module: "LockStore", large: true, set: sharing},
	{name: "store: the same with hand-overs", module: "LockStore", large: true, set: handing},
	{name: "store: mutant: release by key", module: "LockStore", finds: "Refined",
		mutate: []mutation{{`[] c.op = "release"   -> Holds(d, c.id)`, `[] c.op = "release"   -> d.exists`}}},
	{name: "store: mutant: the swap names no beat", module: "LockStore", set: renewing, finds: "Refined",
		mutate: []mutation{{`d.rev = c.rev
                             /\ \A x \in c.drop : Holds(d, x.id) /\ d.holders[x.id].beat = x.beat
    [] c.op = "join"`, `d.rev = c.rev
    [] c.op = "join"`}}},
	{name: "store: mutant: seen still for less than the TTL", module: "LockStore", finds: "Refined",
		mutate: []mutation{{"now >= s.since + TTL", "now >= s.since + TTL - Margin"}}},
}

// graphBound is Store as a store's caller meets it: every call is answered before the next.
var graphBound = bound{
	with:       []string{"Store"},
	invariants: "Together Once Bounded Printed",
	values: map[string]string{
		"Ids": "{1, 2}", "Alike": "TRUE", "Places": "{}", "Unasked": "{}", "TTL": "2", "Keeps": "{0, 1}", "Sets": "{}", "Lates": "{0}", "Lazy": "FALSE",
	},
}

// graphs are the bounds that package specpath walks. A third acquisition is for hand-overs: one that is
// made and one that is asked for, while another holds the key.
var graphs = map[string]map[string]string{
	"exclusive": {"Modes": `{"exclusive"}`, "Ids": "{1, 2, 3}", "Keeps": "{0, 1, 2}", "Places": "{1}"},
	"turns":     {"Modes": `{"exclusive"}`, "Places": "{1, 2}", "TTL": "1"},
	"sharing":   {"Modes": `{"exclusive", "shared"}`, "Places": "{1, 2}", "TTL": "1"},
	"modes":     {"Modes": `{"exclusive", "shared", "permits 2", "permits 1"}`},
	"weights":   {"Modes": `{"exclusive", "permits 2", "both of 2"}`, "Places": "{1, 2}", "TTL": "1", "Unasked": `{"keep", "break", "renew", "undo transfer", "transfer"}`},
	"number":    {"Modes": `{"permits 2", "both of 2"}`, "Places": "{1, 2}", "TTL": "1", "Sets": "{0, 1, 3}", "Unasked": `{"keep", "break", "renew", "undo", "undo transfer", "transfer"}`},
	"three":     {"Modes": `{"exclusive", "shared", "permits 2"}`, "Ids": "{1, 2, 3}", "TTL": "1"},
	"line":      {"Modes": `{"exclusive", "shared", "permits 2"}`, "Places": "{1, 2}", "TTL": "1", "Unasked": `{"keep", "break", "renew", "undo transfer"}`},
	"queue":     {"Modes": `{"exclusive", "shared"}`, "Places": "{1, 2, 3}", "TTL": "1", "Unasked": `{"keep", "break", "renew", "undo transfer", "transfer"}`},
}

// draw leaves each graph in a file of a folder. Some of them: those that are named.
func draw(jar, dir, folder string, only []string) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	if len(only) == 0 {
		only = slices.Sorted(maps.Keys(graphs))
	}
	for _, name := range only {
		set, known := graphs[name]
		if !known {
			return fmt.Errorf("no graph has the bounds %q", name)
		}
		file := filepath.Join(folder, name+".graph")
		began := time.Now()
		c := check{module: "StoreGraph", set: set}
		out, err := c.ask(jar, dir)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, tail(out))
		}
		var graph bytes.Buffer
		edges := 0
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			if edge, err := strconv.Unquote(lines.Text()); err == nil {
				edges++
				fmt.Fprintln(&graph, edge)
			}
		}
		if err := os.WriteFile(file, graph.Bytes(), 0o600); err != nil {
			return err
		}
		said := states.FindSubmatch(out)
		fmt.Fprintf(os.Stdout, "%-10s %5.1f s  %s states, %d edges\n", name, time.Since(began).Seconds(), said[1], edges)
	}
	return nil
}

func with(values, more map[string]string) map[string]string {
	all := maps.Clone(values)
	maps.Copy(all, more)
	return all
}
