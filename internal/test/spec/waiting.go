package main

var waitingBound = bound{
	invariants: "Exclusion Once NoGhosts Sorted",
	properties: "Served Order Prompt",
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
	aReader = map[string]string{"Writers": "{2}", "Readers": "{0, 1, 3}"} // holds, and one that died is in front of the others
	behind  = map[string]string{"Dead": `{"behind"}`}
	quits   = map[string]string{"Quits": "TRUE"}
	besides = map[string]string{"Besides": "TRUE"}
	deaf    = map[string]string{"Feed": "FALSE"}
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
	{name: "waiting: no notice is heard, a slow one, an answer is lost, a death", module: "Waiting", set: with(with(three, deaf), with(place, fault(`"slow", "reply", "death"`)))},
	{name: "waiting: a notice is lost", module: "Waiting", set: with(map[string]string{"Refreshes": "TRUE"}, fault(`"notice"`))},
	{name: "waiting: releases are announced beside", module: "Waiting", set: with(with(pair, holder), with(besides, fault(`"slow", "cursor"`)))},
	{name: "waiting: a key that is kept", module: "Waiting", set: with(keeps, fault(`"death"`))},
	{name: "waiting: a key that is kept for some uses, and a cursor breaks", module: "Waiting", set: with(with(keeps, bounded), fault(`"cursor"`))},
	{name: "waiting: a key that is kept for some uses by one that hears nothing", module: "Waiting", set: with(with(keeps, deaf), bounded)},
	{name: "waiting: a place of the dead among readers", module: "Waiting", set: with(aReader, with(behind, fault(`"slow"`)))},
	{name: "waiting: two places of the dead", module: "Waiting", set: with(three, with(behind, fault(`"death"`)))},
	{name: "waiting: a place of the dead, and one that is passed although it lives", module: "Waiting", set: with(three, with(place, fault(`"slow"`)))},
	{name: "waiting: a place of the dead, and a slow one", module: "Waiting", set: with(three, with(behind, fault(`"slow"`)))},
	{name: "waiting: an answer is lost among three", module: "Waiting", large: true, set: with(quits, fault(`"reply"`))},
	{name: "waiting: a failover among three", module: "Waiting", large: true, set: with(quits, fault(`"election"`))},
	{name: "waiting: two faults of any kind", module: "Waiting", large: true,
		set: map[string]string{"Refreshes": "TRUE", "Quits": "TRUE", "Besides": "TRUE", "Faults": "2", "Kinds": `{"death", "reply", "cursor", "notice", "slow", "election"}`}},

	{name: "waiting: mutant: a claim before which none stands does not ask for holders", module: "Waiting", set: with(pair, holder), finds: "Exclusion",
		mutate: []mutation{{`MayHave(w, pass) == IsTurn(`, `MayHave(w, pass) == (In(w, key.line) /\ Ahead(w) \subseteq pass) \/ IsTurn(`}}},
	{name: "waiting: mutant: a claim passes some, and does not compare the others", module: "Waiting", set: with(three, with(place, fault(`"slow"`))), finds: "Order",
		mutate: []mutation{{`MayHave(w, pass) == IsTurn(`, `MayHave(w, pass) == pass # {} \/ IsTurn(`}}},
	{name: "waiting: mutant: an offer is taken for a grant", module: "Waiting", set: pair, finds: "Exclusion",
		mutate: []mutation{{`[p EXCEPT !.told = TRUE]`, `Now(w, "hold")`}}},
	{name: "waiting: mutant: the record is deleted despite a line", module: "Waiting", set: pair, finds: "Served",
		mutate: []mutation{{`[key EXCEPT !.holders = @ \ {w}, !.over`, `[key EXCEPT !.line = <<>>, !.holders = @ \ {w}, !.over`}}},
	{name: "waiting: mutant: a place that stands there is added again", module: "Waiting", set: with(pair, fault(`"reply"`)), finds: "Once",
		mutate: []mutation{{`[key EXCEPT !.line = IF In(w, @) THEN @`, `[key EXCEPT !.line = IF FALSE THEN @`}}},
	{name: "waiting: mutant: a place is kept after its grant", module: "Waiting", set: pair, finds: "NoGhosts",
		mutate: []mutation{{`{w} \cup (pass \cap Ahead(w))`, `pass \cap Ahead(w)`}}},
	{name: "waiting: mutant: a newcomer does not ask for the line", module: "Waiting", finds: "Order",
		mutate: []mutation{{`ELSE IF @ = <<>> THEN <<w>> ELSE <<>>`, `ELSE <<w>>`}}},
	{name: "waiting: mutant: a reader asks for its own place alone", module: "Waiting", set: with(oneEach, holder), finds: "Order",
		mutate: []mutation{{`MayHave(w, pass) == IsTurn(`, `MayHave(w, pass) == (w \in Readers /\ In(w, key.line) /\ Live(key) \subseteq Readers) \/ IsTurn(`}}},
	{name: "waiting: mutant: a place is passed at once", module: "Waiting", set: with(alone, place), finds: "Order",
		mutate: []mutation{{`IF dates.long /\ In(w`, `IF In(w`}, {`!.aged = slot /\ first # None`, `!.aged = first # None`}}},
	{name: "waiting: mutant: the grace is counted before the offer", module: "Waiting", set: with(three, fault(`"slow"`)), finds: "Order",
		mutate: []mutation{{`dates' = Newer(dates, written)`, `dates' = [Newer(dates, written) EXCEPT !.long = dates.long]`}, {`dates' = Older(dates)`, `dates' = [Older(dates) EXCEPT !.long = TRUE]`}}},
	{name: "waiting: mutant: a place is passed though it was seen", module: "Waiting", set: with(three, with(place, fault(`"slow"`))), finds: "Order",
		mutate: []mutation{{`{p \in Ahead(w) : dates.seen[p] = 0 /\ Free(p)}`, `{p \in Ahead(w) : Free(p)}`}}},
	{name: "waiting: mutant: a claim that is refused is not seen", module: "Waiting", set: with(three, with(behind, fault(`"slow"`))), finds: "Order",
		mutate: []mutation{{`/\ Send(Ask4It) /\ UNCHANGED key
  /\ Seen({w}, {w})`, `/\ Send(Ask4It) /\ UNCHANGED key
  /\ Seen({}, {w})`}}},
	{name: "waiting: mutant: a writer is passed among readers", module: "Waiting", set: with(aReader, with(behind, fault(`"slow"`))), finds: "Order",
		mutate: []mutation{{`{p \in Ahead(w) : dates.seen[p] = 0 /\ Free(p)}`, `{p \in Ahead(w) : dates.seen[p] = 0}`}}},
	{name: "waiting: mutant: all slots begin together", module: "Waiting", set: with(three, behind), finds: "Prompt",
		mutate: []mutation{{`InSlot(w) == Passable(w) = {} \/`, `InSlot(w) == TRUE \/`}}},
	{name: "waiting: mutant: one that was passed comes last", module: "Waiting", set: with(three, with(place, fault(`"slow"`))), finds: "Sorted",
		mutate: []mutation{{`LET n == Cardinality({i \in 1..Len(@) : @[i] \notin Later(w)})`, `LET n == Len(@)`}}},
	{name: "waiting: mutant: one that hears no notice does not poll", module: "Waiting", set: with(pair, deaf), finds: "Served",
		mutate: []mutation{{`News(w) == ~Feed /\`, `News(w) == FALSE /\`}}},
	{name: "waiting: mutant: no place is passed", module: "Waiting", set: with(alone, place), finds: "Served",
		mutate: []mutation{{`IF dates.long /\ In(w`, `IF FALSE /\ In(w`}}},
	{name: "waiting: mutant: the first alone is passed", module: "Waiting", set: with(pair, with(place, fault(`"death"`))), finds: "Served",
		mutate: []mutation{{`{p \in Ahead(w) : dates`, `{p \in {key.line[1]} : dates`}}},
	{name: "waiting: mutant: nobody looks whether those who were told came", module: "Waiting", set: with(three, with(behind, fault(`"death"`))), finds: "Served",
		mutate: []mutation{{`Leaves(k) == IF Len(k.line) > Offered(k) + 1`, `Leaves(k) == IF FALSE`}}},
	{name: "waiting: mutant: the next is not told", module: "Waiting", set: with(three, fault(`"death"`)), finds: "Served",
		mutate: []mutation{{` \cup {<<"next", k.line[i]>> : i \in {n + 1} \cap (1..Len(k.line))}`, ``}}},
	{name: "waiting: mutant: no claim when the holder would be over", module: "Waiting", set: with(alone, holder), finds: "Served",
		mutate: []mutation{{` \/ Timer(w))`, `)`}}},
	{name: "waiting: mutant: a release in doubt tells nobody", module: "Waiting", set: with(pair, fault(`"reply"`)), finds: "Served",
		mutate: []mutation{{`Set(w, Leaves(key')) /\ Send(Tell(key'))`, `Set(w, Leaves(key')) /\ Send(IF key' = key THEN {} ELSE Tell(key'))`}}},
	{name: "waiting: mutant: a notice is lost, and nobody asks unless told", module: "Waiting", set: with(pair, fault(`"notice"`)), finds: "Served"},
	{name: "waiting: mutant: no read after a cursor was opened", module: "Waiting", set: pair, finds: "Served",
		mutate: []mutation{{`[See(w, key, dates.long) EXCEPT !.hears = TRUE, !.told = @ \/ Announced]`, `[proc[w] EXCEPT !.hears = TRUE]`}}},
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
	{name: "waiting: mutant: an announcement is enough, whoever is in line by then", module: "Waiting", large: true, set: with(three, with(holder, with(besides, fault(`"death"`)))), finds: "Served",
		mutate: []mutation{{`Tell(key') \ (IF proc[w].does = "leave" THEN Beside(w) ELSE {}))`, `IF proc[w].does = "leave" THEN {} ELSE Tell(key'))`}}},
}
