package main

var takeoverBound = bound{
	invariants: "Exclusion",
	values: map[string]string{
		"TTL": "2", "Margin": "0", "Minute": "0", "Skews": "{0, 3}", "MaxNow": "3",
		"MaxElections": "2", "MaxWrites": "2", "AtSamples": "FALSE", "DriverKeepsUp": "FALSE",
	},
}

// at is Takeover with samples from the replies of writes: then the order of look and hello counts.
var at = map[string]string{"AtSamples": "TRUE", "DriverKeepsUp": "TRUE"}

// An old beat comes back only with three writes; clocks play no part in that.
var threeWrites = map[string]string{"MaxWrites": "3", "Skews": "{0}"}

var takeover = []check{
	{name: "takeover", module: "Takeover"},
	{name: "takeover, samples from writes", module: "Takeover", set: at},
	{name: "takeover, rule 3 within its minute", module: "Takeover", set: map[string]string{"Minute": "3", "MaxWrites": "1"}},
	{name: "takeover: mutant: three writes, unordered beats", module: "Takeover", set: threeWrites, finds: "Exclusion",
		mutate: []mutation{{`/\ d.beat < n`, ""}}},
	{name: "takeover: mutant: a counter in the document for a beat", module: "Takeover", set: threeWrites, finds: "Exclusion",
		mutate: []mutation{{`/\ d.beat < n`, ""}, {"beat |-> n,", "beat |-> d.beat + 1,"}}},
	{name: "takeover: mutant: renewals keep the beat", module: "Takeover", finds: "Exclusion",
		mutate: []mutation{{"beat |-> n,", "beat |-> 1,"}}},
	{name: "takeover: mutant: the swap names a date", module: "Takeover", finds: "Exclusion",
		mutate: []mutation{{"[beat |-> saw.beat]", "[expireAt |-> saw.expireAt]"}, {"Doc(e).beat = swap.beat", "Doc(e).expireAt <= swap.expireAt"}}},
	{name: "takeover: mutant: still since the look was sent", module: "Takeover", finds: "Exclusion",
		mutate: []mutation{{"since |-> now", "since |-> 0"}}},
	{name: "takeover: mutant: the epoch of the reader", module: "Takeover", finds: "Exclusion",
		mutate: []mutation{{`/\ told = saw.epoch`, ""}}},
	{name: "takeover: mutant: the date of the look, not the hello's", module: "Takeover", finds: "Exclusion",
		mutate: []mutation{{"since |-> now", "since |-> now, clock |-> Clock(e)"}, {`saw.expireAt <= Clock(told)`, "saw.expireAt <= saw.clock"}}},
	{name: "takeover: mutant: hello before the look", module: "Takeover", set: at, finds: "Exclusion",
		mutate: []mutation{{`saw # None \/ ~AtSamples`, "TRUE"}}},
	{name: "takeover: mutant: a sample labelled when it is read", module: "Takeover", set: at, finds: "Exclusion",
		mutate: []mutation{{"epoch |-> sent[n].known]", "epoch |-> known]"}}},
	{name: "takeover: mutant: samples from writes, and a driver that goes back", module: "Takeover", finds: "Exclusion",
		set: map[string]string{"AtSamples": "TRUE"}},
	{name: "takeover: mutant: rule 3 with clocks further apart", module: "Takeover", finds: "Exclusion",
		set: map[string]string{"Minute": "2", "MaxWrites": "1"}},
	{name: "takeover: mutant: trust from the reply", module: "Takeover", finds: "Exclusion",
		mutate: []mutation{{"trust' = sent[n].at + TTL", "trust' = now + TTL"}}},
	{name: "takeover: mutant: the primary's word for a renewal", module: "Takeover", finds: "Exclusion",
		mutate: []mutation{{`n \in Acknowledged.has`, `n \in Doc(current).has`}}},
	{name: "takeover, three writes", module: "Takeover", large: true, set: map[string]string{"MaxWrites": "3"}},
	{name: "takeover, three elections", module: "Takeover", large: true, set: map[string]string{"MaxElections": "3"}},
}
