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
	invariants: "Together Once Bounded Heeded",
	properties: "InTurn",
	values: map[string]string{
		"Ids": "{1, 2}", "Alike": "TRUE", "Modes": `{"exclusive", "permits 2", "both of 2"}`, "Places": "{1, 2}", "TTL": "1",
		"Keeps": "{0, 1}", "Lates": "{0}", "Lazy": "FALSE",
		"Unasked": `{"keep", "break", "renew", "undo transfer", "transfer"}`,
	},
}

// rolling has claims that allow different numbers of permits, as while a deploy changes the number.
var rolling = map[string]string{"Modes": `{"exclusive", "permits 1", "permits 2", "both of 2"}`, "Unasked": `{"keep", "break", "renew", "undo", "undo transfer", "transfer"}`}

var refined = []check{
	{name: "store: claims of one permit and of both", module: "Store"},
	{name: "store: mutant: each claim counts as one", module: "Store", finds: "Together",
		mutate: []mutation{{"Limit(m) > 0 /\\ Taken(k) + Weight(m) > Limit(m)", "Limit(m) > 0 /\\ Cardinality(Alive(k)) >= Limit(m)"}}},
	{name: "store: mutant: one permit is granted before both", module: "Store", finds: "InTurn",
		mutate: []mutation{{"ahead == Counting(Before(k.line, p), pass) IN", "ahead == SelectSeq(Counting(Before(k.line, p), pass), LAMBDA x : Weight(x.mode) <= Weight(m)) IN"}}},
	{name: "store: three places, any of which are passed", module: "Store", set: map[string]string{"Places": "{1, 2, 3}"}},
	{name: "store: mutant: a claim that passes others asks for no holder", module: "Store", finds: "Together",
		mutate: []mutation{{"ELSE IF ~refused /\\ Turn(k, m, p, pass) THEN granted", "ELSE IF (~refused \\/ pass # {}) /\\ Turn(k, m, p, pass) THEN granted"}}},
	{name: "store: mutant: a claim that passes one compares no other", module: "Store", set: map[string]string{"Places": "{1, 2, 3}"}, finds: "InTurn",
		mutate: []mutation{{"ahead == Counting(Before(k.line, p), pass) IN", "ahead == IF pass = {} THEN Counting(Before(k.line, p), pass) ELSE <<>> IN"}}},
	{name: "store: claims that allow different numbers of permits", module: "Store", set: rolling},
	{name: "store: mutant: the largest number counts", module: "Store", set: rolling, finds: "Heeded",
		mutate: []mutation{{"Limit(m) > 0 /\\ Taken(k) + Weight(m) > Limit(m)", "Limit(m) > 0 /\\ Taken(k) + Weight(m) > 2"}}},
	{name: "store: mutant: a place is judged by its own number alone", module: "Store", set: rolling, finds: "InTurn",
		mutate: []mutation{{"\\A j \\in 1..n : Taken(k) + Asked(line, n) <= Limit(line[j].mode)", "Taken(k) + Asked(line, n) <= Limit(line[n].mode)"}}},
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
