------------------------------- MODULE Store -------------------------------
(***************************************************************************)
(* What the caller of a store.Store sees of one key: a record that changes *)
(* in one step at each call, and the answer.  It is Lock.tla without the   *)
(* commands: LockStore.tla says how, and TLC checks it.  It has besides    *)
(* what Lock.tla leaves out: words of waiters, permits.                    *)
(*                                                                         *)
(* Outcomes gives all that a store may answer a call in a state, and the   *)
(* state that follows.  StoreGraph.tla prints that of every state within   *)
(* small bounds; package specpath asks each store all of it.               *)
(*                                                                         *)
(* Time is how many ticks a holder has left.  A word lasts until the next  *)
(* tick.  A call that is applied `late` ticks after it was sent counts     *)
(* from its sending.                                                       *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Ids,      \* the acquisitions; one that is no holder any more stands for the next, too
          Modes,    \* a subset of {"exclusive", "shared", "permits 2", "permits 1"}
          Worded,   \* whether a claim leaves a word: a subset of {TRUE, FALSE}
          TTL,
          Keeps,    \* for how many more ticks a release under MinHold keeps the key
          Lates,    \* how late a call is applied: {0} for calls that are answered
          Lazy,     \* whether holders that have run out may stay in the record after a sharer came
          Early     \* whether a claim may leave its word before it finds that all holders have run out

VARIABLE key

NoHolder == [there |-> FALSE, left |-> 0, broken |-> FALSE, released |-> FALSE]
Free     == [mode |-> "none", holders |-> [i \in Ids |-> NoHolder], word |-> FALSE, reserve |-> FALSE, empty |-> FALSE]
Granted(left) == [there |-> TRUE, left |-> left, broken |-> FALSE, released |-> FALSE]

Limit(m)  == CASE m = "permits 1" -> 1 [] m = "permits 2" -> 2 [] OTHER -> 0
Max(a, b) == IF a > b THEN a ELSE b

There(k)   == {i \in Ids : k.holders[i].there}
Alive(k)   == {i \in There(k) : k.holders[i].left > 0}
Over(k)    == There(k) \ Alive(k)
Wanted(k)  == k.word \/ k.reserve          \* reserve: the word of a writer, which keeps new sharers out

Says(answer, k) == [says |-> answer, then |-> k]

\* empty: a record without holders is left, of a writer whose word has run out. It is in nobody's way.

\* A holder goes, and the record with the last one, unless a writer's word stands in it.
Without(k, i) ==
  LET holders == [k.holders EXCEPT ![i] = NoHolder] IN
  IF There(k) # {i} THEN [k EXCEPT !.holders = holders]
  ELSE IF k.mode # "exclusive" /\ k.reserve THEN [k EXCEPT !.holders = holders, !.mode = "none"]
  ELSE Free

-----------------------------------------------------------------------------
(* The calls: what may be answered, and the record afterwards. *)

Acquire(k, i, m, wants, late) ==
  LET shares   == m # "exclusive"
      mismatch == Alive(k) # {} /\ shares /\ k.mode # "exclusive" /\ k.mode # m
      held     == \/ shares /\ k.reserve
                  \/ Alive(k) # {} /\ (~shares \/ k.mode = "exclusive")
                  \/ Limit(m) > 0 /\ Cardinality(Alive(k)) >= Limit(m)
      stay     == IF Lazy /\ shares /\ k.mode = m THEN SUBSET Over(k) ELSE {{}}
      words    == IF Early /\ wants /\ (Over(k) # {} \/ k.empty) /\ Alive(k) = {} THEN {k.word, TRUE} ELSE {k.word}
  IN
  IF mismatch THEN {Says(<<"mismatch">>, k)}
  ELSE IF held
  THEN {Says(<<"held">>, IF wants THEN [k EXCEPT !.word = TRUE, !.reserve = @ \/ (~shares /\ k.mode # "exclusive")] ELSE k)}
  ELSE {Says(<<"granted", word>>,
             [k EXCEPT !.mode = m, !.reserve = shares /\ @, !.word = word, !.empty = FALSE,
                       !.holders = [j \in Ids |-> IF j = i THEN Granted(Max(0, TTL - late))
                                                  ELSE IF j \in Alive(k) \cup kept THEN @[j] ELSE NoHolder]]) : kept \in stay, word \in words}

\* It never shortens. One that was sent while the holder was alive may be applied when it has run out.
Renew(k, i, late) ==
  LET h == k.holders[i] IN
  IF ~h.there \/ h.released THEN {Says(<<"gone">>, k)}
  ELSE IF h.broken THEN {Says(<<"broken">>, k)}
  ELSE IF h.left + late <= 0 THEN {Says(<<"gone">>, k)}
  ELSE {Says(<<"renewed">>, [k EXCEPT !.holders[i].left = Max(@, TTL - late)])}

Release(k, i) ==
  IF k.holders[i].there THEN {Says(<<"released", Wanted(k)>>, Without(k, i))} ELSE {Says(<<"gone">>, k)}

\* Under MinHold: the holder stays for n ticks more, or goes if that is over.
Keep(k, i, n, late) ==
  IF ~k.holders[i].there THEN {Says(<<"gone">>, k)}
  ELSE IF n = 0 THEN Release(k, i)
  ELSE {Says(<<"released", Wanted(k)>>, [k EXCEPT !.holders[i].released = TRUE, !.holders[i].left = Max(0, n - late)])}

Break(k, i, now) ==
  IF ~k.holders[i].there THEN {Says(<<"gone">>, k)}
  ELSE {Says(<<"done">>, IF now THEN Without(k, i) ELSE [k EXCEPT !.holders[i].broken = TRUE])}

Transfer(k, from, to, late) ==
  LET h == k.holders[from] IN
  IF ~h.there \/ h.released THEN {Says(<<"gone">>, k)}
  ELSE IF h.broken THEN {Says(<<"broken">>, k)}
  ELSE IF h.left + late <= 0 THEN {Says(<<"gone">>, k)}
  ELSE {Says(<<"granted", k.word>>, [k EXCEPT !.holders = [j \in Ids |-> IF j = to THEN Granted(Max(0, TTL - late)) ELSE NoHolder]])}

\* The clean-up of a claim of unknown outcome; of a hand-over with the one that it was to replace.
Undo(k, i) == {Says(<<"done">>, IF k.holders[i].there THEN Without(k, i) ELSE k)}
UndoTransfer(k, to, from) ==
  {Says(<<"done">>, IF k.holders[to].there THEN Without(k, to) ELSE IF k.holders[from].there THEN Without(k, from) ELSE k)}

\* A writer takes its word back, if it is its own.
Withdraw(k, own) ==
  {Says(<<"done">>, IF ~own THEN k ELSE IF There(k) = {} THEN Free ELSE [k EXCEPT !.reserve = FALSE])}

\* What nobody calls: time, and the TTL index.
Tick(k) ==
  {Says(<<>>, [k EXCEPT !.holders = [i \in Ids |-> [@[i] EXCEPT !.left = Max(0, @ - 1)]], !.word = FALSE, !.reserve = FALSE, !.empty = @ \/ (There(k) = {} /\ k.reserve)])}
Sweep(k) == {Says(<<>>, Free)}

-----------------------------------------------------------------------------
(* A call is <<name, arguments>>.  An id is claimed once: by one that is no holder. *)

Calls(k) ==
  LET absent == Ids \ There(k)
      pairs  == {<<i, j>> \in Ids \X Ids : i # j}
  IN
       {<<"acquire", i, m, w, late>> : i \in absent, m \in Modes, w \in Worded, late \in Lates}
  \cup {<<"renew", i, late>> : i \in Ids, late \in Lates}
  \cup {<<"release", i>> : i \in Ids}
  \cup {<<"keep", i, n, late>> : i \in Ids, n \in Keeps, late \in Lates}
  \cup {<<"break", i, now>> : i \in Ids, now \in BOOLEAN}
  \cup (IF k.mode \in {"none", "exclusive"}
        THEN {<<"transfer", x[1], x[2], late>> : x \in {y \in pairs : y[2] \in absent}, late \in Lates}
             \cup {<<"undo transfer", x[2], x[1]>> : x \in pairs}
        ELSE {})
  \cup {<<"undo", i>> : i \in Ids}
  \cup (IF k.reserve THEN {<<"withdraw", own>> : own \in BOOLEAN} ELSE {})
  \cup (IF There(k) # {} /\ Alive(k) = {} /\ ~Wanted(k) THEN {<<"sweep">>} ELSE {})
  \cup {<<"tick">>}

Outcomes(k, c) ==
  CASE c[1] = "acquire"       -> Acquire(k, c[2], c[3], c[4], c[5])
    [] c[1] = "renew"         -> Renew(k, c[2], c[3])
    [] c[1] = "release"       -> Release(k, c[2])
    [] c[1] = "keep"          -> Keep(k, c[2], c[3], c[4])
    [] c[1] = "break"         -> Break(k, c[2], c[3])
    [] c[1] = "transfer"      -> Transfer(k, c[2], c[3], c[4])
    [] c[1] = "undo"          -> Undo(k, c[2])
    [] c[1] = "undo transfer" -> UndoTransfer(k, c[2], c[3])
    [] c[1] = "withdraw"      -> Withdraw(k, c[2])
    [] c[1] = "tick"          -> Tick(k)
    [] c[1] = "sweep"         -> Sweep(k)

Init == key = Free
Next == \E c \in Calls(key) : \E o \in Outcomes(key, c) : key' = o.then
Spec == Init /\ [][Next]_key

-----------------------------------------------------------------------------
(* What must hold of every record. *)

\* One writer, or as many readers or permits as may be.
Together ==
  /\ key.mode = "exclusive" => Cardinality(There(key)) = 1
  /\ Limit(key.mode) > 0 => Cardinality(Alive(key)) <= Limit(key.mode)
  /\ key.mode = "none" <=> There(key) = {}

\* A record without holders has a writer's word, or there is none.
Nothing == There(key) = {} => key.reserve \/ key = Free \/ key = [Free EXCEPT !.empty = TRUE]

\* What a released or broken holder has left is never more than what a release left it.
Bounded == \A i \in Ids : key.holders[i].left <= TTL \/ key.holders[i].left \in Keeps
=============================================================================
