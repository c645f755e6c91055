package main

var assignBound = bound{
	invariants: "Exclusion Whole",
	properties: "Owned Warm",
	values:     map[string]string{"Workers": "{1, 2}", "N": "2", "Changes": "3"},
}

var assigned = []check{
	{name: "assign: two workers", module: "Assign"},
	{name: "assign: three partitions", module: "Assign", large: true, set: map[string]string{"N": "3"}},
	{name: "assign: four changes", module: "Assign", large: true, set: map[string]string{"Changes": "4"}},
	{name: "assign: three workers", module: "Assign", large: true, set: map[string]string{"Workers": "{1, 2, 3}"}},
	{name: "assign: three workers, four changes", module: "Assign", large: true, set: map[string]string{"Workers": "{1, 2, 3}", "Changes": "4"}},

	{name: "assign: mutant: released before the work returned", module: "Assign", finds: "Exclusion",
		mutate: []mutation{{`holder[p] = w /\ p \notin busy[w]`, `holder[p] = w`}}},
	{name: "assign: mutant: leases end before the work of one that is cut off", module: "Assign", finds: "Exclusion",
		mutate: []mutation{{`(does[w] = "cut" /\ busy[w] = {})`, `does[w] = "cut"`}}},
	{name: "assign: mutant: a worker does not look again", module: "Assign", finds: "Owned",
		mutate: []mutation{{`WF_vars(Look(w)) /\ `, ``}}},
	{name: "assign: mutant: one that drains keeps what it has", module: "Assign", finds: "Owned",
		mutate: []mutation{{`\E S \in {Others(w), busy[w]}`, `\E S \in {{}}`}}},
	{name: "assign: mutant: given up before another waits", module: "Assign", finds: "Warm",
		mutate: []mutation{{`@ \cup (Others(w) \ Plan(w))`, `@ \cup (busy[w] \ Plan(w))`}}},
	{name: "assign: mutant: the seat of the dead stays", module: "Assign", finds: "Owned",
		mutate: []mutation{{`Silent(w) /\ w \in seats`, `does[w] = "cut" /\ w \in seats`}}},
}
