package main

import "maps"

// refinedBound is Lock within its bounds, each step of which must be one of Store.
var refinedBound = bound{
	with:       []string{"Lock", "Store"},
	config:     lockBound.config,
	properties: "Refined",
	values:     with(lockBound.values, map[string]string{"Barred": `"broken"`}),
}

// storeBound is Store as a store's caller meets it, every call answered before the next, with
// claims of one permit and of both, and their line.
var storeBound = bound{
	with:       []string{"Store"},
	invariants: "Together Once Bounded Open",
	properties: "InTurn Heeded Kept",
	values: map[string]string{
		"Ids": "{1, 2}", "Alike": "TRUE", "Modes": `{"exclusive", "permits 2", "both of 2"}`, "Places": "{1, 2}", "TTL": "1",
		"Keeps": "{0, 1}", "Sets": "{}", "Lates": "{0}", "Lazy": "FALSE",
		"Unasked": `{"keep", "break", "renew", "undo transfer", "transfer"}`,
	},
}

// numbered has numbers of permits that are set, less and more than claims name.
var numbered = map[string]string{"Sets": "{0, 1, 3}", "Unasked": `{"keep", "break", "renew", "undo", "undo transfer", "transfer"}`}

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

func with(values, more map[string]string) map[string]string {
	all := maps.Clone(values)
	maps.Copy(all, more)
	return all
}
