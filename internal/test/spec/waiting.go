package main

var waitingBound = bound{
	invariants: "Exclusion Once NoGhosts",
	properties: "Served Order",
	values: map[string]string{
		"Writers": "{1, 2}", "Readers": "{3}", "Dead": "{}", "Faults": "0", "Kinds": "{}", "Feed": "TRUE", "Refreshes": "FALSE",
		"Quits": "FALSE", "Besides": "FALSE", "Keeps": "{}", "Uses": "0",
	},
}

var (
	alone   = map[string]string{"Writers": "{1}", "Readers": "{}"}
	pair    = map[string]string{"Writers": "{1, 2}", "Readers": "{}"}
	three   = map[string]string{"Writers": "{1, 2, 3}", "Readers": "{}"}
	oneEach = map[string]string{"Writers": "{1}", "Readers": "{2}"}
	sharers = map[string]string{"Writers": "{1}", "Readers": "{2, 3}"}
	holder  = map[string]string{"Dead": `{"holder"}`}
	place   = map[string]string{"Dead": `{"place"}`}
	quits   = map[string]string{"Quits": "TRUE"}
	besides = map[string]string{"Besides": "TRUE"}
	deaf    = map[string]string{"Feed": "FALSE", "Refreshes": "TRUE"}
	keeps   = with(pair, map[string]string{"Keeps": "{1}"})
	bounded = map[string]string{"Uses": "2"}
)

// fault allows one fault of a kind.
func fault(kinds string) map[string]string {
	return map[string]string{"Faults": "1", "Kinds": "{" + kinds + "}"}
}

var waiting = []check{
	{name: "waiting: notices alone", module: "Waiting", set: quits},
	{name: "waiting: two readers and a writer", module: "Waiting", set: with(sharers, quits)},
	{name: "waiting: a death, a slow one, a cursor that breaks", module: "Waiting", set: fault(`"death", "slow", "cursor"`)},
	{name: "waiting: an answer is lost", module: "Waiting", set: with(pair, with(place, fault(`"reply"`)))},
	{name: "waiting: a dead holder, and a place of the dead", module: "Waiting", set: with(pair, map[string]string{"Dead": `{"holder", "place"}`})},
	{name: "waiting: a failover", module: "Waiting", set: with(pair, with(quits, with(holder, fault(`"election"`))))},
	{name: "waiting: no notice is heard, a slow one, an answer is lost", module: "Waiting", set: with(with(pair, deaf), with(place, fault(`"slow", "reply"`)))},
	{name: "waiting: a notice is lost", module: "Waiting", set: with(map[string]string{"Refreshes": "TRUE"}, fault(`"notice"`))},
	{name: "waiting: releases are announced beside", module: "Waiting", set: with(with(pair, holder), with(besides, fault(`"slow", "cursor"`)))},
	{name: "waiting: a key that is kept", module: "Waiting", set: with(keeps, fault(`"death"`))},
	{name: "waiting: a key that is kept for some uses, and a cursor breaks", module: "Waiting", set: with(with(keeps, bounded), fault(`"cursor"`))},
	{name: "waiting: a key that is kept for some uses by one that hears nothing", module: "Waiting", set: with(with(keeps, deaf), bounded)},
	{name: "waiting: an answer is lost among three", module: "Waiting", large: true, set: with(quits, fault(`"reply"`))},
	{name: "waiting: a failover among three", module: "Waiting", large: true, set: with(quits, fault(`"election"`))},
	{name: "waiting: two faults of any kind", module: "Waiting", large: true,
		set: map[string]string{"Refreshes": "TRUE", "Quits": "TRUE", "Besides": "TRUE", "Faults": "2", "Kinds": `{"death", "reply", "cursor", "notice", "slow", "election"}`}},

	{name: "waiting: mutant: a place is passed without compare", module: "Waiting", set: with(pair, holder), finds: "Exclusion",
		mutate: []mutation{{`MayHave(w, pass) == IsTurn(`, `MayHave(w, pass) == pass # None \/ IsTurn(`}}},
	{name: "waiting: mutant: an offer is taken for a grant", module: "Waiting", set: pair, finds: "Exclusion",
		mutate: []mutation{{`[p EXCEPT !.told = TRUE]`, `Now(w, "hold")`}}},
	{name: "waiting: mutant: the record is deleted despite a line", module: "Waiting", set: pair, finds: "Served",
		mutate: []mutation{{`[key EXCEPT !.holders = @ \ {w}, !.over`, `[key EXCEPT !.line = <<>>, !.holders = @ \ {w}, !.over`}}},
	{name: "waiting: mutant: a place that stands there is added again", module: "Waiting", set: with(pair, fault(`"reply"`)), finds: "Once",
		mutate: []mutation{{`[key EXCEPT !.line = IF In(w, @) THEN @ ELSE Append(@, w)]`, `[key EXCEPT !.line = Append(@, w)]`}}},
	{name: "waiting: mutant: a place is kept after its grant", module: "Waiting", set: pair, finds: "NoGhosts",
		mutate: []mutation{{`{w} \cup ({pass} \cap Ahead(w))`, `{pass} \cap Ahead(w)`}}},
	{name: "waiting: mutant: a newcomer does not ask for the line", module: "Waiting", finds: "Order",
		mutate: []mutation{{`ELSE IF @ = <<>> THEN <<w>> ELSE <<>>`, `ELSE <<w>>`}}},
	{name: "waiting: mutant: a reader asks for its own place alone", module: "Waiting", set: with(oneEach, holder), finds: "Order",
		mutate: []mutation{{`MayHave(w, pass) == IsTurn(`, `MayHave(w, pass) == (w \in Readers /\ In(w, key.line) /\ Live(key) \subseteq Readers) \/ IsTurn(`}}},
	{name: "waiting: mutant: a place is passed at once", module: "Waiting", set: with(alone, place), finds: "Order",
		mutate: []mutation{{`Watches(w) /\ proc[w].aged /\ proc[w].second`, `Watches(w) /\ proc[w].second`}}},
	{name: "waiting: mutant: the grace is counted before the offer", module: "Waiting", finds: "Order",
		mutate: []mutation{{`THEN None ELSE First(k)
`, `THEN None ELSE k.line[1]
`}}},
	{name: "waiting: mutant: the second does not pass a place", module: "Waiting", set: with(alone, place), finds: "Served",
		mutate: []mutation{{`Passes(w)   == `, `Passes(w)   == FALSE /\ `}}},
	{name: "waiting: mutant: those further back do not remove a place", module: "Waiting", set: with(pair, with(place, fault(`"death"`))), finds: "Served",
		mutate: []mutation{{`Waits(w) /\ Watches(w) /\ proc[w].aged /\ ~proc[w].second`, `FALSE`}}},
	{name: "waiting: mutant: nobody is told that it was passed", module: "Waiting", set: with(pair, holder), finds: "Served",
		mutate: []mutation{{`{<<"offer", p>> : p \in {Pass(w)} \ {None}}`, `{}`}}},
	{name: "waiting: mutant: the next is not told", module: "Waiting", set: with(three, fault(`"death"`)), finds: "Served",
		mutate: []mutation{{` \cup {<<"next", k.line[i]>> : i \in {n + 1} \cap (1..Len(k.line))}`, ``}}},
	{name: "waiting: mutant: no claim when the holder would be over", module: "Waiting", set: with(alone, holder), finds: "Served",
		mutate: []mutation{{` \/ Timer(w))`, `)`}}},
	{name: "waiting: mutant: a release in doubt tells nobody", module: "Waiting", set: with(pair, fault(`"reply"`)), finds: "Served",
		mutate: []mutation{{`Set(w, Does("done")) /\ Send(Tell(key'))`, `Set(w, Does("done")) /\ Send(IF key' = key THEN {} ELSE Tell(key'))`}}},
	{name: "waiting: mutant: a notice is lost, and nobody asks unless told", module: "Waiting", set: with(pair, fault(`"notice"`)), finds: "Served"},
	{name: "waiting: mutant: no read after a cursor was opened", module: "Waiting", set: pair, finds: "Served",
		mutate: []mutation{{`[See(w, key) EXCEPT !.hears = TRUE, !.told = @ \/ Announced]`, `[proc[w] EXCEPT !.hears = TRUE]`}}},
	{name: "waiting: mutant: a notice before the answer is forgotten", module: "Waiting", set: pair, finds: "Served",
		mutate: []mutation{{`waits == p.does \in {"reply", "wait"}`, `waits == p.does = "wait"`}}},
	{name: "waiting: mutant: a claim that came too early is not repeated", module: "Waiting", set: with(pair, with(holder, besides)), finds: "Served",
		mutate: []mutation{{` \/ (@ /\ Announced), !.first`, `, !.first`}}},
	{name: "waiting: mutant: one read after a cursor was opened", module: "Waiting", set: with(pair, with(holder, besides)), finds: "Served",
		mutate: []mutation{{`!.hears = TRUE, !.told = @ \/ Announced`, `!.hears = TRUE`}}},
	{name: "waiting: mutant: kept without end by one that hears nothing", module: "Waiting", finds: "Served", set: with(keeps, deaf)},
	{name: "waiting: mutant: kept without end by one whose cursor breaks", module: "Waiting", finds: "Served", set: with(keeps, fault(`"cursor"`))},
	{name: "waiting: mutant: kept though its holder has heard of the waiter", module: "Waiting", finds: "Served", set: keeps,
		mutate: []mutation{{` /\ ~proc[w].wanted /\ (Uses`, ` /\ (Uses`}}},
	{name: "waiting: mutant: no holder that keeps a key is asked", module: "Waiting", finds: "Served", set: keeps,
		mutate: []mutation{{`Ask4It  == {<<"wanted", h>> : h \in Live(key) \cap Keeps}`, `Ask4It  == {}`}}},
	{name: "waiting: mutant: nobody is told that its place was removed", module: "Waiting", large: true, set: with(three, holder), finds: "Served",
		mutate: []mutation{{`Send(Tell(key') \cup {<<"offer", proc[w].first>>})`, `Send(Tell(key'))`}}},
	{name: "waiting: mutant: an announcement is enough, whoever is in line by then", module: "Waiting", large: true, set: with(three, with(holder, with(besides, fault(`"death"`)))), finds: "Served",
		mutate: []mutation{{`Tell(key') \ (IF proc[w].does = "leave" THEN Beside(w) ELSE {}))`, `IF proc[w].does = "leave" THEN {} ELSE Tell(key'))`}}},
}
