------------------------------- MODULE Waiting -------------------------------
(***************************************************************************)
(* The line of a key (design.md §4.8): who asks when, and that everybody   *)
(* who waits is served.  Only a claim, compared and swapped in one step,   *)
(* grants the key; places and notices say who asks, never who holds.       *)
(*                                                                         *)
(* A process waits once, and stands in the line with its own name.  A step *)
(* is one call of a store, or what a process hears or does by itself.  It  *)
(* acts on what its last call or read showed.                              *)
(*                                                                         *)
(* Time is one thing, Tick: a grace passes.  What can be done at once is   *)
(* done before that, but for a fault.  That a holder is over some time     *)
(* after its process died is taken for granted (Takeover.tla), and that a  *)
(* clean-up bars what is late of its claim (Lock.tla).  Left out: places   *)
(* that were not seen for long, which anybody passes at once; permits; a   *)
(* line that is full; waiters of one process, who follow each other.       *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Writers, Readers,  \* the processes that want the key
          Dead,       \* what process 0 left when it died: a subset of {"holder", "place"}
          Faults,     \* how many faults there may be, of these kinds:
          Kinds,      \* a subset of {"death", "reply", "cursor", "notice", "slow", "election"}
          Feed,       \* notices are heard
          Refreshes,  \* waiters ask now and then though nothing told them to
          Quits,      \* waiters may give up
          Besides,    \* a release may be announced before it is applied
          Keeps,      \* those that use the key again and again, until they hear that it is wanted (§4.9)
          Uses        \* how often they do so at most; 0: without bound

VARIABLES
  key,     \* the record: holders, over (those of them who have run out), and the line
  proc,    \* what each process does and knows
  news,    \* the notices on their way
  faults,  \* how many are left
  stood    \* the first in line has been offered the key for a grace, without a pause

own  == <<key, proc, news>>
vars == <<own, faults, stood>>

Waiters == Writers \cup Readers
None    == -1
Next1   == -2     \* in the place of a first one: a notice said that we come next

\* What a process does: start, join, reply (it is on its way), wait, hold, leave (its release was announced), idle (the
\* key is kept between two uses), undo, doubt (of its release), done, quit, dead.
\* first: who was offered the key and comes before us; second: we are the next then; aged: a grace has passed since
\* saw: the holders that refused us; told: it is our turn, as far as we know; hears: the cursor is open
\* line: who waited when we were granted the key; wanted: somebody waits, as we know; uses: how often it was used again
Does(s) == [does |-> s, first |-> None, second |-> FALSE, aged |-> FALSE, saw |-> {}, told |-> FALSE, hears |-> FALSE,
            line |-> <<>>, wanted |-> FALSE, uses |-> 0]

Init ==
  /\ key = [holders |-> IF "holder" \in Dead THEN {0} ELSE {}, over |-> {}, line |-> IF "place" \in Dead THEN <<0>> ELSE <<>>]
  /\ proc = [w \in Waiters \cup {0} |-> IF w = 0 THEN Does("dead") ELSE [Does("start") EXCEPT !.hears = w \in Keeps]]
  /\ news = {} /\ faults = Faults /\ stood = FALSE

-----------------------------------------------------------------------------
(* The record, and whose turn it is. *)

Live(k)          == k.holders \ k.over
In(w, line)      == \E i \in 1..Len(line) : line[i] = w
Index(w, line)   == CHOOSE i \in 1..Len(line) : line[i] = w
Without(line, S) == SelectSeq(line, LAMBDA p : p \notin S)
Gone(w)          == [key EXCEPT !.holders = @ \ {w}, !.over = @ \ {w}]
Queue(w)         == [key EXCEPT !.line = IF In(w, @) THEN @ ELSE Append(@, w)]

\* How many of the first in line may have the key now: one writer, or the readers up to the first writer.
Offered(k) ==
  LET readers == CHOOSE n \in 0..Len(k.line) : /\ \A i \in 1..n : k.line[i] \in Readers
                                               /\ n < Len(k.line) => k.line[n + 1] \notin Readers
  IN IF readers > 0 THEN IF Live(k) \subseteq Readers THEN readers ELSE 0
     ELSE IF k.line # <<>> /\ Live(k) = {} THEN 1 ELSE 0

First(k)     == IF Offered(k) > 0 THEN k.line[1] ELSE None
IsTurn(w, k) == In(w, k.line) /\ Index(w, k.line) <= Offered(k)

Ahead(w)     == {key.line[i] : i \in {j \in 1..Len(key.line) : In(w, key.line) => j < Index(w, key.line)}}

\* A claim is granted in its turn, or, if it is not in line, where nobody is. It may pass one place before its own.
MayHave(w, pass) == IsTurn(w, [key EXCEPT !.line = IF In(w, @) THEN Without(@, {pass}) ELSE IF @ = <<>> THEN <<w>> ELSE <<>>])
Granted(w, pass) == [holders |-> Live(key) \cup {w}, over |-> {}, line |-> Without(key.line, {w} \cup ({pass} \cap Ahead(w)))]

\* Who is told after a change: those whose turn it is, and the next.
Tell(k) == LET n == Offered(k) IN
  IF n = 0 THEN {} ELSE {<<"offer", k.line[i]>> : i \in 1..n} \cup {<<"next", k.line[i]>> : i \in {n + 1} \cap (1..Len(k.line))}
Ask4It  == {<<"wanted", h>> : h \in Live(key) \cap Keeps}
Send(S) == news' = IF Feed THEN news \cup {n \in S : proc[n[2]].does # "dead"} ELSE {}

-----------------------------------------------------------------------------
(* A waiter. *)

Set(w, p)   == proc' = [proc EXCEPT ![w] = p]
Now(w, s)   == [Does(s) EXCEPT !.hears = proc[w].hears]
Waits(w)    == proc[w].does = "wait"
Watches(w)  == proc[w].first \notin {None, Next1}
Passes(w)   == Watches(w) /\ proc[w].aged /\ proc[w].second
Pass(w)     == IF Passes(w) /\ ~proc[w].told THEN proc[w].first ELSE None
Announced   == \E h \in Live(key) : proc[h].does = "leave"

\* What it knows once an answer shows it the record. A claim that a notice caused too early is made again.
See(w, k) ==
  LET p     == proc[w]
      turn  == IsTurn(w, k)
      first == IF turn \/ ~In(w, k.line) THEN None ELSE First(k)
      next  == first # None /\ Index(w, k.line) = Offered(k) + 1
  IN [p EXCEPT !.does = "reply", !.told = turn \/ ~In(w, k.line) \/ (@ /\ Announced), !.first = first, !.second = next,
               !.aged = @ /\ ((first # None /\ p.first = first) \/ (p.first = Next1 /\ next)),
               !.saw = IF turn \/ first # None THEN {} ELSE Live(k)]

\* The holders that it saw would be over by now, if they had not renewed.
Timer(w) == key.over # {} /\ proc[w].saw # {} /\ proc[w].saw \cap Live(key) = {}
Asks(w)  == \/ proc[w].does = "start"
            \/ Waits(w) /\ (proc[w].told \/ Passes(w) \/ (proc[w].aged /\ proc[w].first = Next1) \/ Timer(w))

\* A claim is granted; or refused, if its place was seen in line and is there; else it joins. A reader that nobody told tells
\* others that may have the key with it.
Ask(w) ==
  /\ Asks(w)
  /\ IF MayHave(w, Pass(w))
     THEN /\ key' = Granted(w, Pass(w))
          /\ Set(w, [Now(w, "hold") EXCEPT !.wanted = key'.line # <<>>, !.line = IF Besides THEN key'.line ELSE <<>>])
          /\ Send({<<"offer", p>> : p \in {Pass(w)} \ {None}} \cup (IF w \in Readers /\ ~proc[w].told THEN Tell(key') ELSE {}))
     ELSE /\ Set(w, IF Waits(w) /\ In(w, key.line) THEN See(w, key) ELSE Now(w, "join"))
          /\ Send(Ask4It) /\ UNCHANGED key

\* The answer shows the record after that. A record that is gone has no line.
Join(w) ==
  /\ proc[w].does = "join"
  /\ IF key.holders = {} /\ key.line = <<>> THEN Set(w, Now(w, "start")) /\ UNCHANGED <<key, news>>
     ELSE key' = Queue(w) /\ Set(w, See(w, key')) /\ Send(Ask4It)

Answered(w) == proc[w].does = "reply" /\ Set(w, [proc[w] EXCEPT !.does = "wait"]) /\ UNCHANGED <<key, news>>

\* One that stands further back takes the silent first out of the line.
Remove(w) ==
  /\ Waits(w) /\ Watches(w) /\ proc[w].aged /\ ~proc[w].second
  /\ key' = IF proc[w].first = Head(key.line \o <<None>>) THEN [key EXCEPT !.line = Tail(@)] ELSE key
  /\ Set(w, [See(w, key') EXCEPT !.aged = FALSE])
  /\ Send(Tell(key') \cup {<<"offer", proc[w].first>>})

\* A cursor is opened after the first refusal, and again whenever it broke. What was told before went past it: so a
\* read follows, and one more when a release that was announced by then must have been applied.
Open(w) == Feed /\ Waits(w) /\ ~proc[w].hears /\ Set(w, [See(w, key) EXCEPT !.hears = TRUE, !.told = @ \/ Announced]) /\ UNCHANGED <<key, news>>

Quit(w) == Quits /\ Waits(w) /\ key' = [key EXCEPT !.line = Without(@, {w})] /\ Set(w, Now(w, "quit")) /\ Send(Tell(key'))

\* A claim without an answer is undone, before another is sent. Its place may stay.
Undo(w) == proc[w].does = "undo" /\ key' = Gone(w) /\ Set(w, Now(w, "start")) /\ Send(Tell(key'))

\* A notice comes. A place with which nobody waits any more is taken out of the line.
Hear(n) ==
  LET w == n[2]
      p == proc[w]
      waits == p.does \in {"reply", "wait"}
      stray == p.hears /\ p.does = "quit" /\ n[1] = "offer"
  IN
  /\ key' = IF stray THEN [key EXCEPT !.line = Without(@, {w})] ELSE key
  /\ news' = (news \ {n}) \cup (IF key' = key THEN {} ELSE Tell(key'))
  /\ Set(w, CASE ~p.hears -> p
              [] n[1] = "offer" /\ waits                     -> [p EXCEPT !.told = TRUE]
              [] n[1] = "next" /\ waits /\ p.first = None    -> [p EXCEPT !.first = Next1, !.aged = FALSE]
              [] n[1] = "wanted" /\ p.does \in {"hold", "idle"} -> [p EXCEPT !.wanted = TRUE]
              [] OTHER -> p)

-----------------------------------------------------------------------------
(* A holder. *)

MayKeep(w) == w \in Keeps /\ ~proc[w].wanted /\ (Uses = 0 \/ proc[w].uses < Uses)

\* A key that is kept is used again, or a timer frees it.
Keep(w)  == proc[w].does = "hold" /\ MayKeep(w) /\ Set(w, [proc[w] EXCEPT !.does = "idle"]) /\ UNCHANGED <<key, news>>
Again(w) == /\ proc[w].does = "idle" /\ MayKeep(w) /\ UNCHANGED <<key, news>>
            /\ Set(w, [proc[w] EXCEPT !.does = "hold", !.uses = IF Uses = 0 THEN 0 ELSE @ + 1])

\* Beside the release: those who were in line at the grant are told.
Beside(w) == Tell([key EXCEPT !.holders = {}, !.over = {}, !.line = proc[w].line])
Announce(w) ==
  /\ w \in Writers /\ proc[w].does = "hold" /\ proc[w].line # <<>>
  /\ Set(w, [proc[w] EXCEPT !.does = "leave"]) /\ UNCHANGED key
  /\ Send(Beside(w))

\* The record stays for those who wait, whom the answer shows. Whoever was told is not told again.
Release(w) ==
  /\ proc[w].does \in {"leave", "idle"} \/ (proc[w].does = "hold" /\ ~MayKeep(w))
  /\ key' = Gone(w) /\ Set(w, Does("done"))
  /\ Send(IF key'.holders # {} THEN {} ELSE Tell(key') \ (IF proc[w].does = "leave" THEN Beside(w) ELSE {}))

\* A release without an answer is repeated. What it finds says nothing, so a read shows whom to tell.
Repeat(w) == proc[w].does = "doubt" /\ key' = Gone(w) /\ Set(w, Does("done")) /\ Send(Tell(key'))

\* A holder whose process is dead runs out, and one that a failover brought back.
RunOut(h) == h \in Live(key) /\ proc[h].does \in {"dead", "done"} /\ key' = [key EXCEPT !.over = @ \cup {h}] /\ UNCHANGED <<proc, news>>

-----------------------------------------------------------------------------
(* Faults. *)

Fault(kind) == kind \in Kinds /\ faults > 0 /\ faults' = faults - 1

Die(w) == Fault("death") /\ proc[w].does \notin {"done", "quit", "dead"} /\ Set(w, Does("dead")) /\ news' = {n \in news : n[2] # w} /\ UNCHANGED key

\* An answer is lost: to a claim, or to a release. Both were applied, or not.
LoseReply(w) ==
  /\ Fault("reply") /\ UNCHANGED news
  /\ \/ /\ Asks(w) \/ proc[w].does = "join"
        /\ Set(w, Now(w, "undo"))
        /\ key' \in {key} \cup (IF MayHave(w, Pass(w)) THEN {Granted(w, Pass(w))} ELSE IF Asks(w) THEN {} ELSE {Queue(w)})
     \/ proc[w].does \in {"hold", "leave", "idle"} /\ Set(w, Does("doubt")) /\ key' \in {key, Gone(w)}

\* A release takes so long that its announcement does not count.
Late(w) == Fault("slow") /\ proc[w].does = "leave" /\ Set(w, [proc[w] EXCEPT !.does = "hold", !.line = <<>>]) /\ UNCHANGED <<key, news>>

Break(w) == Fault("cursor") /\ proc[w].hears /\ Set(w, [proc[w] EXCEPT !.hears = FALSE]) /\ UNCHANGED <<key, news>>

LoseNotice(n) == Fault("notice") /\ news' = news \ {n} /\ UNCHANGED <<key, proc>>

\* A failover rolls back what one node alone had: places, and that a place or a holder is gone. It ends every cursor.
Elect ==
  LET back(s) == {w \in Waiters : proc[w].does \in s} IN
  /\ Fault("election") /\ UNCHANGED news
  /\ \E n \in 0..Len(key.line), front \in {<<>>} \cup {<<w>> : w \in {v \in back({"done", "quit"}) : ~In(v, key.line)}},
        h \in {{}} \cup (IF key.holders = {} THEN {{w} : w \in back({"done"})} ELSE {}) :
       key' = [key EXCEPT !.line = front \o SubSeq(@, 1, n), !.holders = @ \cup h]
  /\ proc' = [w \in DOMAIN proc |-> [proc[w] EXCEPT !.hears = FALSE]]

-----------------------------------------------------------------------------
Busy(w) == \/ proc[w].does \in {"start", "join", "reply", "undo", "doubt"}
           \/ Waits(w) /\ (proc[w].told \/ (proc[w].aged /\ proc[w].first # None) \/ (Feed /\ ~proc[w].hears))

\* A grace passes, once everybody has done what it could; or somebody is slow. After another one a refresh is due.
Tick ==
  /\ IF news = {} /\ \A w \in Waiters : ~Busy(w) THEN UNCHANGED faults ELSE Fault("slow")
  /\ proc' = [w \in DOMAIN proc |-> LET p == proc[w] IN
                IF Waits(w) /\ (p.first # None \/ Refreshes) THEN [p EXCEPT !.aged = TRUE, !.told = @ \/ (p.aged /\ p.first = None)] ELSE p]
  /\ stood' = (Offered(key) > 0)
  /\ UNCHANGED <<key, news>>

Acts(w) == Ask(w) \/ Join(w) \/ Answered(w) \/ Remove(w) \/ Open(w) \/ Undo(w) \/ Keep(w) \/ Again(w) \/ Release(w) \/ Repeat(w)
Comes   == (\E h \in key.holders : RunOut(h)) \/ \E n \in news : Hear(n)

Next ==
  \/ Tick
  \/ /\ \/ (Comes \/ \E w \in Waiters : Acts(w) \/ Quit(w) \/ Announce(w)) /\ UNCHANGED faults
        \/ (\E w \in Waiters : Die(w) \/ LoseReply(w) \/ Late(w) \/ Break(w)) \/ (\E n \in news : LoseNotice(n)) \/ Elect
     /\ stood' = (stood /\ First(key') = First(key))

Fair == (\A w \in Waiters : WF_own(Acts(w))) /\ WF_own(Comes) /\ WF_vars(Tick)

Spec == Init /\ [][Next]_vars /\ Fair

-----------------------------------------------------------------------------
(* What must hold. *)

Trusts == {w \in Waiters : proc[w].does \in {"hold", "leave", "idle"}}

\* One holds, or readers alone do. The record has each of them, and nobody who was refused.
Exclusion == /\ Cardinality(Trusts) > 1 => Trusts \subseteq Readers
             /\ Trusts \subseteq Live(key)
             /\ \A w \in key.holders : proc[w].does \notin {"start", "join", "reply", "wait", "quit"}

\* Nobody stands in the line twice.
Once == \A i, j \in 1..Len(key.line) : key.line[i] = key.line[j] => i = j

\* Whoever stands in it waits, as long as there was no fault.
NoGhosts == faults = Faults => \A i \in 1..Len(key.line) : key.line[i] = 0 \/ proc[key.line[i]].does \in {"reply", "wait"}

\* Nobody is passed, or taken out of the line by others, but the first, once it was offered the key for a grace. Readers
\* pass each other, as they have the key together. (A failover brings back a holder unseen, and places that were behind.)
Passed   == {p \in UNION {Ahead(w) : w \in key'.holders \ key.holders} : \E w \in key'.holders \ key.holders : ~({w, p} \subseteq Readers)}
            \cup {key.line[i] : i \in {j \in 1..Len(key.line) : ~In(key.line[j], key'.line) /\ proc'[key.line[j]] = proc[key.line[j]] /\ proc[key.line[j]].does # "quit"}}
Order    == [][Passed = {} \/ (stood /\ Passed = {First(key)}) \/ "election" \in Kinds]_vars

\* Each that lives, and does not give up, is served.
Served == <>(\A w \in Waiters : proc[w].does \notin {"start", "join", "reply", "wait", "undo"})
=============================================================================
