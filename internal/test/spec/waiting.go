package main

var waitingBound = bound{
	invariants: "TypeOK",
	properties: "Served",
	values: map[string]string{
		"TTL": "2", "Dies": "FALSE", "Fails": "FALSE", "Breaks": "TRUE", "Lossy": "FALSE", "Polls": "FALSE", "Lingers": "FALSE", "Spare": "0",
	},
}

var (
	dying = map[string]string{"Dies": "TRUE", "Fails": "TRUE"}
	keeps = map[string]string{"Lingers": "TRUE"}
	lossy = map[string]string{"Lossy": "TRUE", "Polls": "TRUE", "Dies": "TRUE", "Fails": "TRUE"}
)

var waiting = []check{
	{name: "waiting: wake-ups alone, cursors break", module: "Waiting"},
	{name: "waiting: the holder dies, calls fail", module: "Waiting", set: dying},
	{name: "waiting: wake-ups are lost, polls find out", module: "Waiting", set: lossy},
	{name: "waiting: a holder that lingers", module: "Waiting", set: keeps},
	{name: "waiting: a holder that lingers dies, calls fail", module: "Waiting", set: map[string]string{"Lingers": "TRUE", "Dies": "TRUE", "Fails": "TRUE"}},
	{name: "waiting: notices to a holder that lingers are lost, its tokens end", module: "Waiting",
		set: map[string]string{"Lingers": "TRUE", "Spare": "2", "Lossy": "TRUE", "Polls": "TRUE"}},
	{name: "waiting: mutant: notices are lost, and tokens without end", module: "Waiting", finds: "Served",
		set: map[string]string{"Lingers": "TRUE", "Lossy": "TRUE", "Polls": "TRUE"}},
	{name: "waiting: mutant: kept though its client has heard of the waiter", module: "Waiting", finds: "Served", set: keeps,
		mutate: []mutation{{`listens /\ ~heard /\ (Spare`, `listens /\ (Spare`}}},
	{name: "waiting: mutant: kept by a client that does not listen", module: "Waiting", finds: "Served", set: keeps,
		mutate: []mutation{{`MayKeep == Lingers /\ listens /\ `, `MayKeep == Lingers /\ `}}},
	{name: "waiting: mutant: no notice", module: "Waiting", finds: "Served", set: keeps,
		mutate: []mutation{{`notice' = Lingers`, `notice' = FALSE`}}},
	{name: "waiting: mutant: wake-ups are lost, and nobody polls", module: "Waiting", finds: "Served", set: map[string]string{"Lossy": "TRUE"}},
	{name: "waiting: mutant: the word written after the look", module: "Waiting", finds: "Served",
		mutate: []mutation{{`IF key = "free" THEN Take /\ UNCHANGED word`, `IF FALSE THEN Take /\ UNCHANGED word`}, {`at' = "look" /\ word' = TRUE`, `at' = "turning" /\ word' = TRUE`}}},
	{name: "waiting: mutant: no word", module: "Waiting", finds: "Served",
		mutate: []mutation{{`at' = "look" /\ word' = TRUE`, `at' = "look" /\ word' = FALSE`}}},
	{name: "waiting: mutant: the cursor opened after the look", module: "Waiting", finds: "Served",
		mutate: []mutation{{`at = "start" /\ at' = "word" /\ cursor' = TRUE`, `at = "start" /\ at' = "word" /\ cursor' = cursor`}, {
			`at = "turning" /\ at' = "asleep"
         /\ UNCHANGED <<key, holder, word, announce, cursor,`, `at = "turning" /\ at' = "asleep" /\ cursor' = TRUE
         /\ UNCHANGED <<key, holder, word, announce,`}, {`~cursor /\ at \in {"look", "turning", "asleep"}`, `~cursor /\ at = "asleep"`}}},
	{name: "waiting: mutant: no look after a cursor broke", module: "Waiting", finds: "Served",
		mutate: []mutation{{`cursor' = TRUE /\ at' = "look"`, `cursor' = TRUE /\ at' = at`}}},
	{name: "waiting: mutant: wake-ups are not latched", module: "Waiting", finds: "Served", set: map[string]string{"Breaks": "FALSE"},
		mutate: []mutation{{`{wake \/ cursor}`, `{wake \/ (cursor /\ at = "asleep")}`}}},
	{name: "waiting: mutant: no timer for a holder that died", module: "Waiting", finds: "Served", set: map[string]string{"Dies": "TRUE", "Breaks": "FALSE"},
		mutate: []mutation{{`at = "asleep" /\ still >= TTL`, `FALSE /\ still >= TTL`}}},
	{name: "waiting: mutant: a failed call forgets what was seen", module: "Waiting", finds: "Served", set: dying,
		mutate: []mutation{{`at' = "start"
        /\ UNCHANGED <<key, holder, word, announce, cursor, wake, still>>`, `at' = "start" /\ still' = -1
        /\ UNCHANGED <<key, holder, word, announce, cursor, wake>>`}}},
}
