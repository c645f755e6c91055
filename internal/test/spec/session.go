package main

var sessionBound = bound{
	invariants: "Exclusion Final NoCollateral",
	values: map[string]string{
		"p": "p", "q": "q", "Procs": "{p, q}", "Busy": "{p}", "MostWrites": "4", "FewWrites": "1", "Attempts": "1", "Sessions": "1",
		"Rows": "{}", "TTL": "2", "Margin": "0", "Hour": "1", "MaxNow": "3", "MaxElections": "1",
	},
}

var (
	rolledBack = map[string]string{"MaxElections": "2"}
	sweeping   = map[string]string{"Rows": `{"sweep"}`}
	ending     = map[string]string{"Rows": `{"release", "end"}`}
	together   = map[string]string{"Rows": `{"together"}`}
	both       = map[string]string{"Busy": "{p, q}"}
)

var session = []check{
	{name: "session: a takeover", module: "Session"},
	{name: "session: an election", module: "Session", set: rolledBack},
	{name: "session: a sweep", module: "Session", set: sweeping},
	{name: "session: the TTL index", module: "Session", set: map[string]string{"Rows": `{"index"}`}},
	{name: "session: coming under it together", module: "Session", set: together},
	{name: "session: together, and an election", module: "Session", large: true, set: with(together, rolledBack)},
	{name: "session: together, a sweep and an election", module: "Session", large: true, set: with(map[string]string{"Rows": `{"together", "sweep"}`}, rolledBack)},
	{name: "session: together, leases and sessions that are ended, and the next", module: "Session", large: true, set: map[string]string{"Rows": `{"together", "end"}`, "Sessions": "2", "MostWrites": "5"}},
	{name: "session: together, a lease that leaves it", module: "Session", large: true, set: map[string]string{"Rows": `{"together", "leave"}`, "MostWrites": "5"}},
	{name: "session: leases and sessions that are ended", module: "Session", large: true, set: ending},
	{name: "session: a lease that leaves it", module: "Session", large: true, set: map[string]string{"Rows": `{"leave"}`, "MostWrites": "5"}},
	{name: "session: one that is lost, and the next", module: "Session", large: true, set: map[string]string{"Sessions": "2", "MostWrites": "5"}},
	{name: "session: a sweep and an election", module: "Session", large: true, set: with(sweeping, rolledBack)},
	{name: "session: two processes alike", module: "Session", large: true, set: both},
	{name: "session: two processes alike, a sweep", module: "Session", large: true, set: with(both, sweeping)},
	{name: "session: a longer time", module: "Session", large: true, set: map[string]string{"MostWrites": "5", "MaxNow": "4"}},
	{name: "session: a margin", module: "Session", large: true, set: map[string]string{"TTL": "3", "Margin": "1", "MaxNow": "4"}},

	{name: "session: mutant: the mark by one node only", module: "Session", set: rolledBack, finds: "NoCollateral",
		mutate: []mutation{{`dead' = dead
`, `dead' = dead \cup {s}
`}}},
	{name: "session: a mark counts before a majority has it, if it is the primary's", module: "Session", large: true, set: rolledBack,
		mutate: []mutation{{`ELSE UNCHANGED <<safe, dead, answers>>
  /\ UNCHANGED <<now, election, sent, past, proc>>`, `ELSE dead' = dead \cup {s \in Ids : d.session[s].marked} /\ UNCHANGED <<safe, answers>>
  /\ UNCHANGED <<now, election, sent, past, proc>>`}}},
	{name: "session: mutant: a takeover without the mark", module: "Session", finds: "Exclusion",
		mutate: []mutation{{`Named(w, u) \subseteq dead`, `\A s \in Named(w, u) : \E v \in Writes(ForSessions) : Session(v) = s /\ now >= End(v)`}}},
	{name: "session: mutant: the mark names no beat", module: "Session", finds: "Final",
		mutate: []mutation{{`now >= End(<<s[1], i.n>>) \/ ("end"`, `(\E v \in Writes(ForSessions) : Session(v) = s /\ now >= End(v)) \/ ("end"`}}},
	{name: "session: mutant: the swap names no beat", module: "Session", finds: "Exclusion",
		mutate: []mutation{{`d.key = c.drops `, `((d.key = None /\ c.drops = None) \/ (d.key # None /\ c.drops # None /\ Same(d.key, c.drops))) `}}},
	{name: "session: mutant: renewal of the dead", module: "Session", finds: "Final",
		mutate: []mutation{{`
                         /\ ~d.session[Session(w)].marked`, ""}, {`  /\ w \in answers
  /\ Current(p) # 0
`, `  /\ w \in answers
`}}},
	{name: "session: the dead are renewed, but a late answer moves nothing", module: "Session",
		mutate: []mutation{{`
                         /\ ~d.session[Session(w)].marked`, ""}}},
	{name: "session: a late answer counts, but the dead are not renewed", module: "Session",
		mutate: []mutation{{`  /\ w \in answers
  /\ Current(p) # 0
`, `  /\ w \in answers
`}}},
	{name: "session: mutant: trust past the deadline", module: "Session", finds: "Final",
		mutate: []mutation{{"!.sTrust = Max(@, End(w) - Margin)", "!.sTrust = Max(@, End(w) + 1 - Margin)"}}},
	{name: "session: mutant: trust from the reply", module: "Session", finds: "Exclusion",
		mutate: []mutation{{"!.sTrust = Max(@, End(w) - Margin)", "!.sTrust = now + TTL - Margin"}}},
	{name: "session: mutant: a renewal on the primary's word", module: "Session", set: rolledBack, finds: "Final",
		mutate: []mutation{{`ELSE UNCHANGED <<safe, dead, answers>>
  /\ UNCHANGED <<now, election, sent, past, proc>>`, `ELSE UNCHANGED <<safe, dead>> /\ answers' = answers \cup {w \in Awaited : d.session[<<w[1], 1>>].n = w[2]}
  /\ UNCHANGED <<now, election, sent, past, proc>>`}}},
	{name: "session: mutant: it counts before the renewal is answered", module: "Session", finds: "Exclusion",
		mutate: []mutation{{`!.out = Beat(p)])

\* §4.11, come under together`, `!.out = Beat(p), !.under = Current(p)])

\* §4.11, come under together`}}},
	{name: "session: mutant: the swap names no session", module: "Session", set: together, finds: "Exclusion",
		mutate: []mutation{{` /\ d.under = c.seen `, ` `}}},
	{name: "session: mutant: the sweep names no session", module: "Session", large: true, set: with(map[string]string{"Rows": `{"together", "sweep", "end"}`, "Sessions": "2", "MostWrites": "5"}, rolledBack), finds: "NoCollateral",
		mutate: []mutation{{` /\ doc.under = u`, ``}}},
	{name: "session: mutant: together after a renewal alone", module: "Session", large: true, set: map[string]string{"Rows": `{"together", "end"}`, "Sessions": "2", "MostWrites": "5", "MaxNow": "2"}, finds: "Exclusion",
		mutate: []mutation{{` => sent[p][i].op = "renew" /\ sent[p][i].names = 0`, ` => TRUE`}}},
	{name: "session: a renewal leaves its session out, and the swap names it", module: "Session", large: true, set: map[string]string{"MostWrites": "5"},
		mutate: []mutation{{`"renew", proc[p].k, Current(p), None)`, `"renew", proc[p].k, IF proc[p].under # 0 THEN 0 ELSE Current(p), None)`}}},
	{name: "session: mutant: sweep by the ID, without the beat", module: "Session", set: sweeping, finds: "NoCollateral",
		mutate: []mutation{{`/\ doc.key = w`, `/\ doc.key # None /\ Same(doc.key, w)`}}},
	{name: "session: mutant: sweep by key", module: "Session", set: sweeping, finds: "NoCollateral",
		mutate: []mutation{{`/\ doc.key = w`, `/\ doc.key # None`}}},
	{name: "session: mutant: an id used twice", module: "Session", finds: "Final",
		mutate: []mutation{{`
  /\ proc[p].s < Sessions`, ""}, {`Send(p, "begin", proc[p].s + 1,`, `Send(p, "begin", 1,`}, {`!.s = @ + 1, !.under`, `!.s = 1, !.under`},
			{`d.session[Session(w)] = Absent
    []`, `d.session[Session(w)].n < w[2]
    []`}}},
	{name: "session: mutant: it is ended while leases are under it", module: "Session", set: ending, finds: "Final",
		mutate: []mutation{{`("end" \in Rows /\ Ended(s))`, `"end" \in Rows`}}},
}
