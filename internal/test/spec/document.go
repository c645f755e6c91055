package main

var documentBound = bound{
	invariants: "NoLostUpdate Acknowledged Once SurelyNot Exclusion NoCollateral",
	values: map[string]string{
		"p": "p", "q": "q", "Lockers": "{}", "Updaters": "{p, q}", "Busy": "{p}", "Rounds": "1", "MostWrites": "3", "Changes": "1",
		"Rows": "{}", "TTL": "1", "MaxNow": "1", "MaxElections": "2",
	},
}

var (
	again2  = map[string]string{"Rounds": "2", "MostWrites": "3"}
	leases  = map[string]string{"Lockers": "{p, q}", "Updaters": "{}", "MaxElections": "1", "Rows": `{"renew"}`, "TTL": "2", "MaxNow": "2", "MostWrites": "2"}
	saves   = map[string]string{"Lockers": "{p, q}", "Updaters": "{}", "MaxElections": "1", "Rows": `{"save"}`, "Changes": "2"}
	mixed   = map[string]string{"Lockers": "{p}", "Updaters": "{q}"}
	resent  = map[string]string{"Rows": `{"again"}`}
	oneVote = map[string]string{"MaxElections": "1"}
)

var document = []check{
	{name: "document: two updates", module: "Document"},
	{name: "document: a save that is sent again", module: "Document", set: with(resent, oneVote)},
	{name: "document: leases", module: "Document", set: leases},
	{name: "document: saves under a lease", module: "Document", set: saves},
	{name: "document: an update beside a lease", module: "Document", set: mixed},
	{name: "document: an update that begins again", module: "Document", set: with(again2, oneVote)},
	{name: "document: an update that begins again, an election", module: "Document", large: true, set: again2},
	{name: "document: a save that is sent again, an election", module: "Document", large: true, set: resent},
	{name: "document: leases and an election", module: "Document", large: true, set: with(leases, map[string]string{"MaxElections": "2"})},

	{name: "document: mutant: a save by key alone", module: "Document", finds: "NoLostUpdate",
		mutate: []mutation{{`[] c.op = "finish" -> Holds(d, Id(w))`, `[] c.op = "finish" -> TRUE`}}},
	{name: "document: mutant: a save acknowledged by one node", module: "Document", finds: "Acknowledged",
		mutate: []mutation{{`/\ w # None /\ Answered(w)
  /\ Become(p, [proc[p] EXCEPT !.out = None, !.is = IF @ = "saving" THEN "idle"`, `/\ w # None /\ Applied(w)
  /\ Become(p, [proc[p] EXCEPT !.out = None, !.is = IF @ = "saving" THEN "idle"`}}},
	{name: "document: mutant: the claim of an update is sent again", module: "Document", finds: "NoLostUpdate",
		mutate: []mutation{{`
  /\ Single(w) => ~Spent(w)`, ""}}},
	{name: "document: the claim of an update is sent again, and waits for a majority", module: "Document",
		mutate: []mutation{{`
  /\ Single(w) => ~Spent(w)`, ""}, {`THEN \E o \in once : o.w = w /\ Become`, `THEN \E o \in once : o.w = w /\ Answered(w) /\ o.val = Doc(Place(w) - 1).val /\ Become`}}},
	{name: "document: mutant: a lease on the word of one node", module: "Document", set: map[string]string{"Lockers": "{p, q}", "Updaters": "{}"}, finds: "Exclusion",
		mutate: []mutation{{`ELSE Answered(w) /\ now`, `ELSE Applied(w) /\ now`}}},
	{name: "document: mutant: a takeover names no beat", module: "Document", set: leases, finds: "Exclusion",
		mutate: []mutation{{`d.lock.beat = c.drops   `, `IF c.drops = None THEN d.lock.id = None ELSE d.lock.id = Id(c.drops)   `}}},
	{name: "document: mutant: a claim asks for nobody", module: "Document", set: leases, finds: "Exclusion",
		mutate: []mutation{{`d.lock.beat = c.drops   `, `(c.drops = None \/ d.lock.beat = c.drops)   `}}},
	{name: "document: mutant: the value of a look before the claim", module: "Document", finds: "NoLostUpdate",
		mutate: []mutation{{`{[w |-> w, val |-> d.val]}`, `{[w |-> w, val |-> Doc(n).val] : n \in 0..Len(log)}`}}},
	{name: "document: mutant: release by key", module: "Document", set: leases, finds: "NoCollateral",
		mutate: []mutation{{`/\ Here.lock.id # None /\ ~InHand(Here.lock.id)`, `/\ Here.lock.id # None /\ \E r \in Procs \X (1..Rounds) : proc[r[1]].k >= r[2] /\ ~InHand(r)`}}},
	{name: "document: mutant: saves without numbers", module: "Document", set: saves, finds: "NoLostUpdate",
		mutate: []mutation{{`
    [] c.op = "save"   -> Holds(d, Id(w)) /\ d.lock.saves < c.no`, `
    [] c.op = "save"   -> Holds(d, Id(w))`}}},
	{name: "document: mutant: a lost answer is forgotten", module: "Document", set: with(resent, oneVote), finds: "SurelyNot",
		mutate: []mutation{{`!.out = Beat(p), !.doubt = TRUE]`, `!.out = Beat(p)]`}}},
	{name: "document: mutant: no such lock, on the word of one node", module: "Document", finds: "SurelyNot",
		mutate: []mutation{{`/\ safe = Len(log) /\ ~Holds(Here, Id(w))`, `/\ ~Holds(Here, Id(w))`}}},
	{name: "document: mutant: begun again after an unknown outcome", module: "Document", set: with(again2, map[string]string{"MaxElections": "1", "MostWrites": "4"}), finds: "Once",
		mutate: []mutation{{`/\ w # None /\ ~Applied(w)
  /\ safe`, `/\ w # None
  /\ safe`}}},
	{name: "document: mutant: a round under the id of the one before", module: "Document", set: with(again2, oneVote), finds: "NoLostUpdate",
		mutate: []mutation{{`Id(w)   == <<w[1], Sent(w).of>>`, `Id(w)   == <<w[1], 1>>`}, {`InHand(id) == proc[id[1]].k = id[2] /\ `, `InHand(id) == `}}},
}
