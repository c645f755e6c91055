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
(* done before that, but for a fault; so is the slot of one place before   *)
(* that of the next.  That a holder is over some time                      *)
(* after its process died is taken for granted (Takeover.tla), and that a  *)
(* clean-up bars what is late of its claim (Lock.tla).  Left out: places   *)
(* that were not seen for long, which anybody passes at once; permits; a   *)
(* line that is full; waiters of one process, who follow each other.       *)
(*                                                                         *)
(* A key that is free is offered to the first in line since it is free.    *)
(* Whoever stands there, and knows it, acts within the grace, which shows  *)
(* in the date at which its place was seen.  After the grace a claim       *)
(* passes all places before its own that were not seen since.              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Writers, Readers,  \* the processes that want the key
          Dead,       \* what process 0 left when it died: a subset of {"holder", "place"}; or {"behind"}, a place behind the first, which holds
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
  dates,   \* what the dates of the record say: whether the key is offered for a grace, and who was seen since it is
  faults,  \* how many are left
  came,    \* those in line, and those that were passed, in the order in which they came
  truth    \* what the dates should say

own  == <<key, proc, news, dates>>
vars == <<own, faults, came, truth>>

Waiters == Writers \cup Readers
None    == -1
Next1   == -2     \* in the place of a first one: a notice said that we come next

\* What a process does: start, join, reply (it is on its way), wait, hold, leave (its release was announced), idle (the
\* key is kept between two uses), undo, doubt (of its release), check (that somebody came after it), done, quit, dead.
\* first: who was offered the key and comes before us; aged: our slot has come
\* saw: the holders that refused us; told: it is our turn, as far as we know; hears: the cursor is open
\* line: who waited when we were granted the key; wanted: somebody waits, as we know; uses: how often it was used again
Does(s) == [does |-> s, first |-> None, aged |-> FALSE, saw |-> {}, told |-> FALSE, hears |-> FALSE,
            line |-> <<>>, wanted |-> FALSE, uses |-> 0]

\* A place is seen for a grace and what is left of another.
Unseen == [long |-> FALSE, seen |-> [w \in Waiters \cup {0} |-> 0]]

\* Who holds the key in the beginning. A place that process 0 left is a reader's, if it is among these.
Living  == Waiters \ {0}
Holding == IF "holder" \in Dead THEN {0} ELSE IF "behind" \in Dead THEN {CHOOSE w \in Living : \A v \in Living : w <= v} ELSE {}

Init ==
  /\ key = [holders |-> Holding, over |-> {}, line |-> IF Dead \cap {"place", "behind"} # {} THEN <<0>> ELSE <<>>]
  /\ proc = [w \in Waiters \cup {0} |-> IF w = 0 THEN Does("dead") ELSE [Does(IF w \in Holding THEN "hold" ELSE "start") EXCEPT !.hears = w \in Keeps]]
  /\ news = {} /\ faults = Faults
  /\ came = key.line /\ dates = Unseen /\ truth = Unseen

-----------------------------------------------------------------------------
(* The record, and whose turn it is. *)

Live(k)          == k.holders \ k.over
In(w, line)      == \E i \in 1..Len(line) : line[i] = w
Index(w, line)   == CHOOSE i \in 1..Len(line) : line[i] = w
Without(line, S) == SelectSeq(line, LAMBDA p : p \notin S)
Gone(w)          == [key EXCEPT !.holders = @ \ {w}, !.over = @ \ {w}]

\* One that comes is the last. One that was passed stands again before those that came later.
Later(w)         == {came[i] : i \in {j \in 1..Len(came) : In(w, came) /\ j > Index(w, came)}}
Queue(w)         == [key EXCEPT !.line = IF In(w, @) THEN @
                                         ELSE LET n == Cardinality({i \in 1..Len(@) : @[i] \notin Later(w)})
                                              IN SubSeq(@, 1, n) \o <<w>> \o SubSeq(@, n + 1, Len(@))]

\* How many of the first in line may have the key now: one writer, or the readers up to the first writer.
Offered(k) ==
  LET readers == CHOOSE n \in 0..Len(k.line) : /\ \A i \in 1..n : k.line[i] \in Readers
                                               /\ n < Len(k.line) => k.line[n + 1] \notin Readers
  IN IF readers > 0 THEN IF Live(k) \subseteq Readers THEN readers ELSE 0
     ELSE IF k.line # <<>> /\ Live(k) = {} THEN 1 ELSE 0

First(k)     == IF Offered(k) > 0 THEN k.line[1] ELSE None
IsTurn(w, k) == In(w, k.line) /\ Index(w, k.line) <= Offered(k)

Ahead(w)     == {key.line[i] : i \in {j \in 1..Len(key.line) : In(w, key.line) => j < Index(w, key.line)}}

\* Those who may have the key as it is held now, were they the first.
Free(p)      == Live(key) \subseteq IF p \in Readers THEN Readers ELSE {}

\* A claim passes, once the key is offered for a grace, all places before its own that were not seen since, in one step.
Passable(w)  == IF dates.long /\ In(w, key.line) /\ ~IsTurn(w, key) THEN {p \in Ahead(w) : dates.seen[p] = 0 /\ Free(p)} ELSE {}

\* A claim is granted in its turn, or, if it is not in line, where nobody is.
MayHave(w, pass) == IsTurn(w, [key EXCEPT !.line = IF In(w, @) THEN Without(@, pass) ELSE IF @ = <<>> THEN <<w>> ELSE <<>>])
Granted(w, pass) == [holders |-> Live(key) \cup {w}, over |-> {}, line |-> Without(key.line, {w} \cup (pass \cap Ahead(w)))]

\* Who is told after a change: those whose turn it is, and the next.
Tell(k) == LET n == Offered(k) IN
  IF n = 0 THEN {} ELSE {<<"offer", k.line[i]>> : i \in 1..n} \cup {<<"next", k.line[i]>> : i \in {n + 1} \cap (1..Len(k.line))}
Ask4It  == {<<"wanted", h>> : h \in Live(key) \cap Keeps}
Send(S) == news' = IF Feed THEN news \cup {n \in S : proc[n[2]].does # "dead"} ELSE {}

-----------------------------------------------------------------------------
(* The dates. *)

\* After a step the key is offered as before, or again since a holder left it. calls: whose places were seen at their own calls.
\* A grace later, and another, it does not matter any more.
Newer(d, calls) ==
  IF Offered(key') = 0 \/ Live(key) \ Live(key') # {} THEN Unseen
  ELSE [d EXCEPT !.seen = [p \in DOMAIN @ |-> IF ~In(p, key'.line) THEN 0 ELSE IF p \in calls \/ ~In(p, key.line) THEN 2 ELSE @[p]]]
Older(d) == IF Offered(key) = 0 THEN Unseen ELSE [long |-> TRUE, seen |-> [p \in DOMAIN d.seen |-> IF d.seen[p] > 0 THEN d.seen[p] - 1 ELSE 0]]

Seen(written, called) == dates' = Newer(dates, written) /\ truth' = Newer(truth, called)

\* A waiter that was passed knows since when it waits.
Remembered ==
  LET new == SelectSeq(key'.line, LAMBDA p : ~In(p, came))
  IN SelectSeq(came \o new, LAMBDA p : In(p, key'.line) \/ proc'[p].does \in {"reply", "wait", "join"})

-----------------------------------------------------------------------------
(* A waiter. *)

Set(w, p)   == proc' = [proc EXCEPT ![w] = p]
Now(w, s)   == [Does(s) EXCEPT !.hears = proc[w].hears]
Waits(w)    == proc[w].does = "wait"
Announced   == \E h \in Live(key) : proc[h].does = "leave"

\* What it knows once an answer shows it the record, and whether its slot has come. A claim that a notice caused too early is made
\* again.
See(w, k, slot) ==
  LET p     == proc[w]
      turn  == IsTurn(w, k)
      first == IF turn \/ ~In(w, k.line) THEN None ELSE First(k)
  IN [p EXCEPT !.does = "reply", !.told = turn \/ ~In(w, k.line) \/ (@ /\ Announced), !.first = first,
               !.aged = slot /\ first # None, !.saw = IF turn \/ first # None THEN {} ELSE Live(k)]

\* Without a feed: a read would show it another first, or its turn.
News(w) == ~Feed /\ Waits(w) /\ LET s == See(w, key, FALSE) IN (s.told /\ ~proc[w].told) \/ s.first # proc[w].first

\* The holders that it saw would be over by now, if they had not renewed.
Timer(w) == key.over # {} /\ proc[w].saw # {} /\ proc[w].saw \cap Live(key) = {}
Asks(w)  == \/ proc[w].does = "start"
            \/ Waits(w) /\ (proc[w].told \/ (proc[w].aged /\ proc[w].first # None) \/ Timer(w))

\* What it has to do is not done yet.
Busy(w) == \/ proc[w].does \in {"start", "join", "reply", "undo", "doubt", "check"}
           \/ Waits(w) /\ (proc[w].told \/ (proc[w].aged /\ proc[w].first # None) \/ Timer(w) \/ (Feed /\ ~proc[w].hears) \/ News(w))

\* Those that stand before it, and know that the key is free, have their slots before its own.
InSlot(w) == Passable(w) = {} \/ \A p \in Ahead(w) : ~Busy(p)

\* A claim is granted; or refused, if its place was seen in line and is there, which it is after that; else it joins. It may be
\* second to find that out, and comes to nothing then until another grace has passed. A reader that nobody told tells
\* others that may have the key with it.
Claim(w) ==
  LET pass == Passable(w) IN
  /\ Asks(w)
  /\ IF MayHave(w, pass)
     THEN /\ key' = Granted(w, pass)
          /\ Set(w, [Now(w, "hold") EXCEPT !.wanted = key'.line # <<>>, !.line = IF Besides THEN key'.line ELSE <<>>])
          /\ Send({<<"offer", p>> : p \in pass} \cup (IF w \in Readers /\ ~proc[w].told THEN Tell(key') ELSE {}))
     ELSE /\ Set(w, IF Waits(w) /\ In(w, key.line) THEN See(w, key, FALSE) ELSE Now(w, "join"))
          /\ Send(Ask4It) /\ UNCHANGED key
  /\ Seen({w}, {w})
Ask(w) == InSlot(w) /\ Claim(w)

\* The answer shows the record after that. A record that is gone has no line.
Join(w) ==
  /\ proc[w].does = "join"
  /\ IF key.holders = {} /\ key.line = <<>> THEN Set(w, Now(w, "start")) /\ UNCHANGED <<key, news>>
     ELSE key' = Queue(w) /\ Set(w, See(w, key', dates.long)) /\ Send(Ask4It)
  /\ Seen({w}, {w})

Answered(w) == proc[w].does = "reply" /\ Set(w, [proc[w] EXCEPT !.does = "wait"]) /\ UNCHANGED <<key, news>>

\* A cursor is opened after the first refusal, and again whenever it broke. What was told before went past it: so a
\* read follows, and one more when a release that was announced by then must have been applied.
Open(w) == Feed /\ Waits(w) /\ ~proc[w].hears /\ Set(w, [See(w, key, dates.long) EXCEPT !.hears = TRUE, !.told = @ \/ Announced]) /\ UNCHANGED <<key, news>>

\* Without a feed it polls: a read, by which its place is not seen.
Poll(w) == News(w) /\ Set(w, [See(w, key, dates.long) EXCEPT !.does = "wait"]) /\ UNCHANGED <<key, news>>

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

\* Those of whom a release, and a read after one, tells nobody may be the only ones that live.
Leaves(k) == IF Len(k.line) > Offered(k) + 1 THEN [Does("check") EXCEPT !.first = First(k)] ELSE Does("done")

\* The record stays for those who wait, whom the answer shows. Whoever was told is not told again.
Release(w) ==
  /\ proc[w].does \in {"leave", "idle"} \/ (proc[w].does = "hold" /\ ~MayKeep(w))
  /\ key' = Gone(w) /\ Set(w, Leaves(key'))
  /\ Send(IF key'.holders # {} THEN {} ELSE Tell(key') \ (IF proc[w].does = "leave" THEN Beside(w) ELSE {}))

\* A release without an answer is repeated. What it finds says nothing, so a read shows whom to tell.
Repeat(w) == proc[w].does = "doubt" /\ key' = Gone(w) /\ Set(w, Leaves(key')) /\ Send(Tell(key'))

\* Before the grace is over it looks whether the first came, and else tells all: each then looks, which shows that it lives.
Check(w) ==
  /\ proc[w].does = "check" /\ Set(w, Does("done")) /\ UNCHANGED key
  /\ Send(IF First(key) = proc[w].first /\ First(key) # None THEN {<<"offer", p>> : p \in {key.line[i] : i \in 1..Len(key.line)}} ELSE {})

\* A holder whose process is dead runs out, and one that a failover brought back.
RunOut(h) == h \in Live(key) /\ proc[h].does \in {"dead", "done"} /\ key' = [key EXCEPT !.over = @ \cup {h}] /\ UNCHANGED <<proc, news>>

-----------------------------------------------------------------------------
(* Faults. *)

Fault(kind) == kind \in Kinds /\ faults > 0 /\ faults' = faults - 1

Die(w) == Fault("death") /\ proc[w].does \notin {"done", "quit", "dead"} /\ Set(w, Does("dead")) /\ news' = {n \in news : n[2] # w} /\ UNCHANGED key

\* An answer is lost: to a claim, or to a release. Both were applied, or not.
LoseReply(w) ==
  /\ Fault("reply") /\ UNCHANGED news
  /\ \/ /\ (Asks(w) /\ InSlot(w)) \/ proc[w].does = "join"
        /\ Set(w, Now(w, "undo"))
        /\ key' \in {key} \cup (IF MayHave(w, Passable(w)) THEN {Granted(w, Passable(w))} ELSE IF Asks(w) THEN {} ELSE {Queue(w)})
     \/ proc[w].does \in {"hold", "leave", "idle"} /\ Set(w, Does("doubt")) /\ key' \in {key, Gone(w)}

\* A release takes so long that its announcement does not count.
Late(w) == Fault("slow") /\ proc[w].does = "leave" /\ Set(w, [proc[w] EXCEPT !.does = "hold", !.line = <<>>]) /\ UNCHANGED <<key, news>>

\* One is slow, or was and still is, and the slot of the next begins.
Early(w) == ~InSlot(w) /\ (Fault("slow") \/ ("slow" \in Kinds /\ faults < Faults /\ UNCHANGED faults)) /\ Claim(w)

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
\* A grace passes, once everybody has done what it could; or somebody is slow. After another one a refresh is due.
Tick ==
  /\ IF news = {} /\ \A w \in Waiters : ~Busy(w) THEN UNCHANGED faults ELSE Fault("slow")
  /\ proc' = [w \in DOMAIN proc |-> LET p == proc[w] IN
                IF Waits(w) /\ (p.first # None \/ Refreshes) THEN [p EXCEPT !.aged = TRUE, !.told = @ \/ (p.aged /\ p.first = None)] ELSE p]
  /\ dates' = Older(dates) /\ truth' = Older(truth)
  /\ UNCHANGED <<key, news, came>>

Acts(w) == Ask(w) \/ Join(w) \/ ((Answered(w) \/ Open(w) \/ Poll(w) \/ Undo(w) \/ Keep(w) \/ Again(w) \/ Release(w) \/ Repeat(w) \/ Check(w)) /\ Seen({}, {}))
Comes   == ((\E h \in key.holders : RunOut(h)) \/ \E n \in news : Hear(n)) /\ Seen({}, {})

Next ==
  \/ Tick
  \/ /\ \/ (Comes \/ \E w \in Waiters : Acts(w) \/ ((Quit(w) \/ Announce(w)) /\ Seen({}, {}))) /\ UNCHANGED faults
        \/ ((\E w \in Waiters : Die(w) \/ LoseReply(w) \/ Late(w) \/ Break(w)) \/ (\E n \in news : LoseNotice(n)) \/ Elect) /\ Seen({}, {})
        \/ \E w \in Waiters : Early(w)
     /\ came' = Remembered

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

\* Nobody is passed but those that had the key offered for a grace, and did nothing since they could have had it. Readers
\* pass each other, as they have the key together. (A failover brings back a holder unseen, and places that were behind.)
Passed == {p \in UNION {Ahead(w) : w \in key'.holders \ key.holders} : \E w \in key'.holders \ key.holders : ~({w, p} \subseteq Readers)}
          \cup {key.line[i] : i \in {j \in 1..Len(key.line) : ~In(key.line[j], key'.line) /\ proc'[key.line[j]] = proc[key.line[j]] /\ proc[key.line[j]].does # "quit"}}
Order  == [][\/ \A p \in Passed : truth.long /\ truth.seen[p] = 0 /\ Free(p)
             \/ "election" \in Kinds]_vars

\* Nobody that lives is passed, as long as there was no fault.
Prompt == [][faults' < Faults \/ \A p \in Passed : proc[p].does = "dead"]_vars

\* Nobody stands before one that came earlier, though that one was passed and came again.
Sorted == "election" \in Kinds \/ \A i, j \in 1..Len(key.line) : i < j => Index(key.line[i], came) < Index(key.line[j], came)

\* Each that lives, and does not give up, is served.
Served == <>(\A w \in Waiters : proc[w].does \notin {"start", "join", "reply", "wait", "undo"})
=============================================================================
