package main

var pathBound = bound{
	invariants: "Exclusion NoCollateral NoRevival OneWins",
	values: map[string]string{
		"Procs": "{1, 2}", "Paths": `{"/a"}`, "Depths": `{"0"}`, "Modes": `{"exclusive"}`, "Attempts": "1", "MostWrites": "2",
		"Rows": `{"refresh", "release"}`, "TTL": "2", "Quickly": "1", "Hour": "1", "Exact": "FALSE", "Draws": "{0}", "MaxNow": "3", "MaxElections": "1",
	},
}

var (
	allPaths = map[string]string{
		"Paths": `{"/", "/a", "/b", "/a/b"}`, "Depths": `{"0", "infinity"}`, "Modes": `{"exclusive", "shared"}`, "Rows": "{}", "MostWrites": "1", "MaxNow": "0",
	}
	electing = map[string]string{"MaxElections": "2", "MaxNow": "2", "Rows": `{"refresh"}`}
	atOnce   = map[string]string{"Rows": `{"at once", "refresh"}`}
	waited   = map[string]string{"Rows": `{"finish", "refresh"}`}
	doubtful = map[string]string{"Exact": "TRUE", "Draws": "{0, 1}", "MaxNow": "0", "Attempts": "2", "Rows": "{}"}
	writes3  = map[string]string{"MostWrites": "3"}
)

var path = []check{
	{name: "path: two locks", module: "Path"},
	{name: "path: every pair of requests", module: "Path", set: allPaths},
	{name: "path: an election", module: "Path", set: electing},
	{name: "path: refreshes at once", module: "Path", set: atOnce},
	{name: "path: a lock that had to wait", module: "Path", set: waited},
	{name: "path: the TTL index", module: "Path", set: map[string]string{"Rows": `{"refresh", "index"}`, "MaxNow": "4"}},
	{name: "path: doubt", module: "Path", set: doubtful, also: "Decided"},
	{name: "path: doubt among three", module: "Path", set: with(doubtful, map[string]string{"Procs": "{1, 2, 3}"}), also: "Decided"},
	{name: "path: three writes", module: "Path", large: true, set: writes3},
	{name: "path: three writes, refreshes at once", module: "Path", large: true, set: with(atOnce, writes3)},
	{name: "path: two attempts", module: "Path", large: true, set: map[string]string{"Attempts": "2"}},
	{name: "path: three processes", module: "Path", large: true, set: map[string]string{"Procs": "{1, 2, 3}"}},
	{name: "path: an election and releases", module: "Path", large: true, set: with(electing, map[string]string{"Rows": `{"refresh", "release"}`, "MaxNow": "3"})},

	{name: "path: mutant: granted without the look", module: "Path", finds: "Exclusion",
		mutate: []mutation{{`Clear(p, n) == InTheWay(p, n) \subseteq Cleared(n)`, `Clear(p, n) == TRUE`}}},
	{name: "path: mutant: the look before the lock is added", module: "Path", finds: "Exclusion",
		mutate: []mutation{{`THEN Place(Adding(Mine(p)))..safe`, `THEN 0..safe`}}},
	{name: "path: mutant: the look reads what may be rolled back", module: "Path", set: electing, finds: "Exclusion",
		mutate: []mutation{{`Place(Adding(Mine(p)))..safe`, `Place(Adding(Mine(p)))..Len(log)`}}},
	{name: "path: mutant: a removal counts before a majority has it", module: "Path", set: electing, finds: "Exclusion",
		mutate: []mutation{{`s == Docs(safe) IN`, `s == Here IN`}}},
	{name: "path: mutant: the locks above are forgotten", module: "Path", set: allPaths, finds: "Exclusion",
		mutate: []mutation{{`
     \/ s.depth = "infinity" /\ s.path \in Above(r.path)`, ""}}},
	{name: "path: mutant: the locks below are forgotten", module: "Path", set: allPaths, finds: "Exclusion",
		mutate: []mutation{{`
     \/ r.depth = "infinity" /\ s.path \in Below(r.path)`, ""}}},
	{name: "path: mutant: a shared request asks for nothing", module: "Path", set: allPaths, finds: "Exclusion",
		mutate: []mutation{{`/\ r.mode = "exclusive" \/ s.mode = "exclusive"`, `/\ r.mode = "exclusive"`}}},
	{name: "path: mutant: a removal names no revision", module: "Path", finds: "NoCollateral",
		mutate: []mutation{{`Drop(k) == Here[k] # None /\ now >= Here[k].end /\ Gone(k)`, `Drop(k) == (\E w \in Writes : Token(w) = k /\ now >= End(w)) /\ Gone(k)`}}},
	{name: "path: mutant: what is in doubt is removed", module: "Path", finds: "NoCollateral",
		mutate: []mutation{{`Here[k] # None /\ now >= Here[k].end /\ Gone(k)

`, `Here[k] # None /\ (now >= Here[k].end \/ ~Granted(k)) /\ Gone(k)

`}}},
	{name: "path: mutant: released by its path", module: "Path", finds: "NoCollateral",
		mutate: []mutation{{`Remove(k) == ~InHand(k) /\ Gone(k)`, `Remove(k) == ~InHand(k) /\ proc[k[1]].k >= k[2] /\ \E l \in Tokens : wants[l[1]].path = wants[k[1]].path /\ Gone(l)`}}},
	{name: "path: mutant: a refresh names no revision", module: "Path", set: writes3, finds: "NoCollateral",
		mutate: []mutation{{`[] c.op = "refresh" -> d[k] # None /\ d[k].rev = c.rev`, `[] c.op = "refresh" -> d[k] # None`}}},
	{name: "path: mutant: a refresh revives", module: "Path", finds: "NoRevival",
		mutate: []mutation{{`[] Sent(w).op = "refresh" -> ~Late(d, w)`, `[] Sent(w).op = "refresh" -> TRUE`}}},
	{name: "path: a refresh of what has run out is sent, and does not count", module: "Path",
		mutate: []mutation{{`Applied(w) /\ ~Lapsed(w)`, `Applied(w)`}}},
	{name: "path: mutant: a refresh acknowledged by one node", module: "Path", set: electing, finds: "NoCollateral",
		mutate: []mutation{{`proc[p].is = "held" /\ w # None /\ Answered(w)`, `proc[p].is = "held" /\ w # None /\ Applied(w)`}}},
	{name: "path: mutant: the undo of a late refresh names no revision", module: "Path", set: writes3, finds: "NoCollateral",
		mutate: []mutation{{`
  /\ Here[Token(w)] # None /\ Here[Token(w)].rev = w
`, `
`}}},
	{name: "path: mutant: a refresh at once of what has little time left", module: "Path", set: atOnce, finds: "NoRevival",
		mutate: []mutation{{`d[k].end > c.at + Quickly /\ d[k].in = c.in`, `d[k].in = c.in`}}},
	{name: "path: mutant: a refresh at once sets its end", module: "Path", set: with(atOnce, writes3), finds: "NoCollateral",
		mutate: []mutation{{`IF Sent(e.w).op = "at once" THEN Max(d[k].end, End(e.w)) ELSE End(e.w)`, `End(e.w)`}}},
	{name: "path: mutant: a refresh at once counts whenever it is applied", module: "Path", set: with(atOnce, map[string]string{"TTL": "3"}), finds: "NoRevival",
		mutate: []mutation{{`[] Sent(w).op = "at once" -> now < Sent(w).at + Quickly`, `[] Sent(w).op = "at once" -> TRUE`}}},
	{name: "path: mutant: the grant of a lock that had to wait names no revision", module: "Path", set: with(waited, writes3), finds: "NoCollateral",
		mutate: []mutation{{`[] c.op = "finish"  -> d[k] # None /\ d[k].rev = c.rev`, `[] c.op = "finish"  -> d[k] # None`}}},
	{name: "path: mutant: locks in doubt are ignored", module: "Path", set: doubtful, finds: "Exclusion",
		mutate: []mutation{{`k # Mine(p) /\ d[k] # None`, `k # Mine(p) /\ Granted(k) /\ d[k] # None`}}},
	{name: "path: mutant: locks in doubt are taken for granted", module: "Path", set: doubtful, finds: "OneWins",
		mutate: []mutation{{`IF Exact THEN {~Granted(k)} ELSE BOOLEAN`, `{FALSE}`}}},
	{name: "path: mutant: no order of those in doubt, each withdraws", module: "Path", set: doubtful, also: "Decided", finds: "Decided",
		mutate: []mutation{{`\E k \in others : Before(k, Mine(p))`, `others # {}`}}},
	{name: "path: mutant: no order of those in doubt, each waits", module: "Path", set: doubtful, also: "Decided", finds: "Decided",
		mutate: []mutation{{`\E k \in others : Before(k, Mine(p))`, `FALSE`}}},
	{name: "path: mutant: it adds again before the other is decided", module: "Path", set: doubtful, also: "Decided", finds: "Decided",
		mutate: []mutation{{`
  /\ \A k \in Others(p) : FALSE \in Doubtful(k)
  /\ IF Others(p) = {}`, `
  /\ IF TRUE`}}},
}
