package main

var scheduleBound = bound{
	config:     "VIEW View\nSYMMETRY Alike",
	invariants: "OneFate Told ToldOnce Exclusion NeverTwice Tokens InOrder",
	values: map[string]string{
		"p": "p", "q": "q", "r": "r", "Procs": "{p, q}", "Newer": "{}", "Older": "{}", "OldTimes": "{1, 2}", "NewTimes": "{2, 3}", "Beside": "FALSE", "Once": "FALSE", "Each": "FALSE",
		"MaxLate": "99", "Retries": "0", "MostDeaths": "2", "Rows": "{}", "TTL": "1", "MaxNow": "3", "MaxClaims": "2", "MaxDeaths": "1",
	},
}

var (
	claims3  = map[string]string{"MaxClaims": "3"}
	onceOnly = map[string]string{"Once": "TRUE", "Rows": `{"stop"}`}
	twoPlans = map[string]string{"Newer": "{q}", "OldTimes": "{1, 3}", "Rows": `{"guess"}`, "MaxDeaths": "0"}
	tooEarly = map[string]string{"Newer": "{q}", "OldTimes": "{1, 3}", "Rows": `{"early"}`, "MaxDeaths": "0"}
	longer   = map[string]string{"TTL": "2"}
	renewed  = map[string]string{"OldTimes": "{1}", "Rows": `{"renew"}`, "TTL": "2", "MaxNow": "4"}
	failing  = map[string]string{"OldTimes": "{1, 2}", "Rows": `{"fail"}`, "Retries": "1", "MaxLate": "1", "MaxDeaths": "0"}
	pausing  = map[string]string{"OldTimes": "{1, 2, 3}", "Rows": `{"pause"}`}
	overlaps = map[string]string{"Beside": "TRUE", "Rows": `{"early"}`}
	inOrder  = map[string]string{"Each": "TRUE", "OldTimes": "{1, 2, 3}"}
)

var scheduled = []check{
	{name: "schedule: two processes", module: "Schedule"},
	{name: "schedule: three claims", module: "Schedule", set: claims3},
	{name: "schedule: at most once", module: "Schedule", set: onceOnly},
	{name: "schedule: two plans", module: "Schedule", set: twoPlans},
	{name: "schedule: two plans, clocks ahead", module: "Schedule", set: tooEarly},
	{name: "schedule: renewals", module: "Schedule", set: renewed},
	{name: "schedule: retries", module: "Schedule", set: with(failing, claims3)},
	{name: "schedule: a pause", module: "Schedule", set: pausing},
	{name: "schedule: beside", module: "Schedule", set: overlaps},
	{name: "schedule: each", module: "Schedule", set: inOrder},
	{name: "schedule: each, but none too late", module: "Schedule", set: with(inOrder, map[string]string{"MaxLate": "1"})},

	{name: "schedule: mutant: a claim does not ask whether what it takes for decided is", module: "Schedule", set: twoPlans, finds: "OneFate",
		mutate: []mutation{{`c.m <= doc.decided /\ `, ""}}},
	{name: "schedule: mutant: a claim does not ask what was decided since", module: "Schedule", finds: "OneFate",
		mutate: []mutation{{` /\ doc.decided < c.first`, ""}}},
	{name: "schedule: mutant: a claim by a plan that was replaced", module: "Schedule", set: twoPlans, finds: "OneFate",
		mutate: []mutation{{`THEN doc.edition = c.edition ELSE`, `THEN TRUE ELSE`}}},
	{name: "schedule: mutant: a plan is written though a claim came between", module: "Schedule", set: twoPlans, finds: "OneFate",
		mutate: []mutation{{` /\ doc.decided = c.decided`, ""}}},
	{name: "schedule: mutant: a claim while a run is open", module: "Schedule", set: longer, finds: "Exclusion",
		mutate: []mutation{{`
                      /\ Beside \/ Open = {}`, ""}, {`~doc.paused /\ (Beside \/ Open = {})`, `~doc.paused`}}},
	{name: "schedule: mutant: a repetition names no beat", module: "Schedule", set: renewed, finds: "Exclusion",
		mutate: []mutation{{` /\ doc.runs[c.dead].beat = c.beat`, ""}}},
	{name: "schedule: mutant: trust from the reply", module: "Schedule", finds: "Exclusion",
		mutate: []mutation{{`![i].tok = doc.seq + 1, `, `![i].tok = doc.seq + 1, ![i].by = now, `}, {`IF now < c.by + TTL THEN {"has"}`, `IF TRUE THEN {"has"}`}}},
	{name: "schedule: mutant: undo takes the run out", module: "Schedule", finds: "OneFate",
		mutate: []mutation{{`!.runs[i].left = "unbegun", !.runs[i].beat = Left, !.runs[i].again = now]`, `!.runs = Without(@, i)]`}}},
	{name: "schedule: mutant: a return below a later claim", module: "Schedule", set: overlaps, finds: "OneFate",
		mutate: []mutation{{`c.back /\ doc.decided = c.due`, `c.back`}}},
	{name: "schedule: mutant: what is dropped is told by its process alone", module: "Schedule", finds: "Told",
		mutate: []mutation{{`drops |-> c.drops, verdict |-> c.verdict, left |-> "", again |-> 0]`, `drops |-> {}, verdict |-> c.verdict, left |-> "", again |-> 0]`}}},
	{name: "schedule: mutant: a run that is given up has no record", module: "Schedule", set: onceOnly, finds: "OneFate",
		mutate: []mutation{{`[drops |-> IF why \/ late THEN r.drops \cup {r.due} ELSE r.drops,`, `[drops |-> r.drops,`}}},
	{name: "schedule: mutant: a run that is left keeps what was told", module: "Schedule", set: map[string]string{"Rows": `{"stop"}`}, finds: "ToldOnce",
		mutate: []mutation{{`![i].beat = Left, ![i].drops = {}]]`, `![i].beat = Left]]`}}},
	{name: "schedule: mutant: an end is told before it is written", module: "Schedule", set: failing, finds: "ToldOnce",
		mutate: []mutation{{`  /\ Quiet /\ NoBeginning /\ UNCHANGED <<doc, renewal, fates, told>>

\* Its lease is over.`, `  /\ told' = Counted(told, {c.due})
  /\ Quiet /\ NoBeginning /\ UNCHANGED <<doc, renewal, fates>>

\* Its lease is over.`}}},
	{name: "schedule: mutant: at most once, by whether it is known to have begun", module: "Schedule", set: onceOnly, finds: "NeverTwice",
		mutate: []mutation{{`\/ (Once /\ ~unb)`, `\/ (Once /\ r.begun)`}}},
	{name: "schedule: mutant: at most once, and the own run that is lost counts as not begun", module: "Schedule", set: onceOnly, finds: "NeverTwice",
		mutate: []mutation{{`claim[j].is \in {"asks", "has", "undoes"}`, `claim[j].is \in {"asks", "has", "undoes", "runs", "over"}`}}},
	{name: "schedule: mutant: a repetition has the token of the run", module: "Schedule", finds: "Tokens",
		mutate: []mutation{{`![i].tok = doc.seq + 1, `, `![i].tok = IF fresh THEN doc.seq + 1 ELSE doc.runs[c.dead].tok, `}}},
	{name: "schedule: mutant: a pause forgets what was late before it", module: "Schedule", set: pausing, finds: "OneFate",
		mutate: []mutation{{`!.plans = Paused(@, t)]`, `!.plans = <<[plan |-> "old", from |-> t]>>]`}}},
	{name: "schedule: mutant: each, and the latest first", module: "Schedule", set: inOrder, finds: "InOrder",
		mutate: []mutation{{`IF Each THEN t - MaxLate ELSE t`, `t`}}},
}
