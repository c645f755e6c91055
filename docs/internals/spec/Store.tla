------------------------------- MODULE Store -------------------------------
(***************************************************************************)
(* What the caller of a store.Store sees of one key: a record that changes *)
(* in one step at each call, and the answer.  It is Lock.tla without the   *)
(* commands: LockStore.tla says how, and TLC checks it.  It has besides    *)
(* what Lock.tla leaves out: the line of those who wait, permits.          *)
(*                                                                         *)
(* Outcomes gives all that a store may answer a call in a state, and the   *)
(* state that follows.                                                     *)
(*                                                                         *)
(* Time is how many ticks a holder has left.  A place in line is stale at  *)
(* the next tick, unless its waiter asks again.  A call that is applied    *)
(* `late` ticks after it was sent counts from its sending.                 *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Ids,      \* the acquisitions; one that is no holder any more stands for the next, too
          Alike,    \* whether one that is none may stand for all that are none, as they are numbers and alike
          Modes,    \* a subset of {"exclusive", "shared", "permits 1", "permits 2", "both of 2"}: one permit where one or two may be taken; two at once
          Places,   \* numbers of places; one that is not in line stands for the next, too
          Unasked,  \* the names of calls that nobody makes
          TTL,
          Keeps,    \* for how many more ticks a release under MinHold keeps the key
          Lates,    \* how late a call is applied: {0} for calls that are answered
          Lazy      \* whether holders that have run out may stay in the record after a sharer came

VARIABLE key

NoHolder == [there |-> FALSE, left |-> 0, broken |-> FALSE, released |-> FALSE, weight |-> 1]
Free     == [mode |-> "none", holders |-> [i \in Ids |-> NoHolder], line |-> <<>>]
Granted(left, weight) == [there |-> TRUE, left |-> left, broken |-> FALSE, released |-> FALSE, weight |-> weight]

\* What a claim asks for: the mode that its key has then, how many permits, and how many may be taken with them. 0: any number of
\* readers. The record does not keep that number: each claim is judged by its own.
Limit(m)  == CASE m = "permits 1" -> 1 [] m \in {"permits 2", "both of 2"} -> 2 [] OTHER -> 0
Kind(m)   == IF Limit(m) > 0 THEN "permits" ELSE m
Weight(m) == IF m = "both of 2" THEN 2 ELSE 1

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

Least(S, n) == {i \in S : Cardinality({j \in S : j < i}) < n}

There(k)   == {i \in Ids : k.holders[i].there}
Alive(k)   == {i \in There(k) : k.holders[i].left > 0}
Over(k)    == There(k) \ Alive(k)

RECURSIVE Sum(_, _)
Sum(f, S) == IF S = {} THEN 0 ELSE LET x == CHOOSE x \in S : TRUE IN f[x] + Sum(f, S \ {x})

\* How many permits are taken, and how many the first n in a line ask for; holders and waiters in other modes.
Taken(k)       == Sum([i \in Ids |-> k.holders[i].weight], Alive(k))
Asked(line, n) == Sum([j \in 1..n |-> Weight(line[j].mode)], 1..n)

Says(answer, k) == [says |-> answer, then |-> k]

\* A place in line is [place, mode, fresh]. At is where it stands; 0: nowhere.
At(line, p)   == IF \E j \in 1..Len(line) : line[j].place = p THEN CHOOSE j \in 1..Len(line) : line[j].place = p ELSE 0
Out(line, p)  == SelectSeq(line, LAMBDA x : x.place # p)
Range(line)   == {line[j] : j \in 1..Len(line)}
Names(line)   == [j \in 1..Len(line) |-> line[j].place]

\* Those who come before a place, if it is in line; else all.
Before(line, p) == IF At(line, p) > 0 THEN SubSeq(line, 1, At(line, p) - 1) ELSE line
After(line, p)  == IF At(line, p) > 0 THEN SubSeq(line, At(line, p) + 1, Len(line)) ELSE <<>>

\* The places that count, and stay when one behind them is granted: fresh ones, but for those that are passed.
Counting(line, pass) == SelectSeq(line, LAMBDA x : x.fresh /\ x.place \notin pass)

\* How many of the first in a line, all of which count, may have the key now, in any order: of permits those before the first
\* with which more would be taken than it, or one before it, allows.
Offered(k, line) ==
  LET m       == Kind(line[1].mode)
      fits(n) == /\ \A j \in 1..n : Kind(line[j].mode) = m
                 /\ m = "exclusive" => n <= 1
                 /\ m = "permits" => \A j \in 1..n : Taken(k) + Asked(line, n) <= Limit(line[j].mode)
  IN IF line = <<>> THEN 0 ELSE IF Alive(k) # {} /\ (k.mode = "exclusive" \/ k.mode # m) THEN 0
     ELSE CHOOSE n \in 0..Len(line) : (n = 0 \/ fits(n)) /\ (n = Len(line) \/ ~fits(n + 1))

\* Whether a claim in mode m, with place p or none, comes next. Holders may refuse it all the same.
Turn(k, m, p, pass) ==
  LET ahead == Counting(Before(k.line, p), pass) IN
  ahead = <<>> \/ (At(k.line, p) > 0 /\ Len(ahead) < Offered(k, Append(ahead, [place |-> p, mode |-> m, fresh |-> TRUE])))

\* A claim that has to wait stands last, or where it stood.
Joined(line, m, p) ==
  IF p = 0 THEN line ELSE IF At(line, p) > 0 THEN [line EXCEPT ![At(line, p)].fresh = TRUE]
  ELSE Append(line, [place |-> p, mode |-> m, fresh |-> TRUE])

\* A holder goes. The record stays for those in line.
Without(k, i) ==
  LET holders == [k.holders EXCEPT ![i] = NoHolder] IN
  IF There(k) = {i} THEN [Free EXCEPT !.line = k.line] ELSE [k EXCEPT !.holders = holders]

-----------------------------------------------------------------------------
(* The calls: what may be answered, and the record afterwards. *)

\* A grant takes its place out of the line, and what did not count before it. Of a sharer that came to the end of the line a store
\* may find at once that those before it share the key, or leave that to its next call.
Acquire(k, i, m, p, pass, late) ==
  LET shares   == m # "exclusive"
      mismatch == Alive(k) # {} /\ shares /\ k.mode # "exclusive" /\ k.mode # Kind(m)
      refused  == \/ Alive(k) # {} /\ (~shares \/ k.mode = "exclusive")
                  \/ Limit(m) > 0 /\ Taken(k) + Weight(m) > Limit(m)
      stay     == IF Lazy /\ shares /\ k.mode = Kind(m) THEN SUBSET Over(k) ELSE {{}}
      line     == Counting(Before(k.line, p), pass) \o After(k.line, p)
      waits    == [k EXCEPT !.line = Joined(@, m, p)]
      granted  == {Says(<<"granted", Names(line)>>,
                        [mode |-> Kind(m), line |-> line,
                         holders |-> [j \in Ids |-> IF j = i THEN Granted(Max(0, TTL - late), Weight(m))
                                                    ELSE IF j \in Alive(k) \cup kept THEN k.holders[j] ELSE NoHolder]]) : kept \in stay}
  IN
  IF mismatch THEN {Says(<<"mismatch">>, [k EXCEPT !.line = Out(@, p)])}
  ELSE IF ~refused /\ Turn(k, m, p, pass) THEN granted
  ELSE {Says(<<"held">>, waits)} \cup IF ~refused /\ shares /\ p # 0 /\ Turn(waits, m, p, pass) THEN granted ELSE {}

\* It never shortens. One that was sent while the holder was alive may be applied when it has run out.
Renew(k, i, late) ==
  LET h == k.holders[i] IN
  IF ~h.there \/ h.released THEN {Says(<<"gone">>, k)}
  ELSE IF h.broken THEN {Says(<<"broken">>, k)}
  ELSE IF h.left + late <= 0 THEN {Says(<<"gone">>, k)}
  ELSE {Says(<<"renewed">>, [k EXCEPT !.holders[i].left = Max(@, TTL - late)])}

\* Its answer has who waits and counts, and how many holders are left, by their permits.
Released(before, after) == Says(<<"released", Names(Counting(before.line, {})), Taken(after)>>, after)

Release(k, i) == IF k.holders[i].there THEN {Released(k, Without(k, i))} ELSE {Says(<<"gone">>, k)}

\* Under MinHold: the holder stays for n ticks more, or goes if that is over.
Keep(k, i, n, late) ==
  IF ~k.holders[i].there THEN {Says(<<"gone">>, k)}
  ELSE IF n = 0 THEN Release(k, i)
  ELSE {Released(k, [k EXCEPT !.holders[i].released = TRUE, !.holders[i].left = Max(0, n - late)])}

Break(k, i, now) ==
  IF ~k.holders[i].there THEN {Says(<<"gone">>, k)}
  ELSE {Says(<<"done">>, IF now THEN Without(k, i) ELSE [k EXCEPT !.holders[i].broken = TRUE])}

Transfer(k, from, to, late) ==
  LET h == k.holders[from] IN
  IF ~h.there \/ h.released THEN {Says(<<"gone">>, k)}
  ELSE IF h.broken THEN {Says(<<"broken">>, k)}
  ELSE IF h.left + late <= 0 THEN {Says(<<"gone">>, k)}
  ELSE {Says(<<"granted", Names(k.line)>>, [k EXCEPT !.holders = [j \in Ids |-> IF j = to THEN Granted(Max(0, TTL - late), 1) ELSE NoHolder]])}

\* The clean-up of a claim of unknown outcome; of a hand-over with the one that it was to replace.
Undo(k, i) == {Says(<<"done">>, IF k.holders[i].there THEN Without(k, i) ELSE k)}
UndoTransfer(k, to, from) ==
  {Says(<<"done">>, IF k.holders[to].there THEN Without(k, to) ELSE IF k.holders[from].there THEN Without(k, from) ELSE k)}

\* A waiter's place is taken out of the line.
Leave(k, p) == {Says(<<"done">>, [k EXCEPT !.line = Out(@, p)])}

\* What nobody calls: time, and the TTL index.
Tick(k)  == {Says(<<>>, [k EXCEPT !.holders = [i \in Ids |-> [@[i] EXCEPT !.left = Max(0, @ - 1)]],
                                  !.line = [j \in 1..Len(@) |-> [@[j] EXCEPT !.fresh = FALSE]]])}
Sweep(k) == {Says(<<>>, Free)}

-----------------------------------------------------------------------------
(* A call is <<name, arguments>>.  An id is claimed once: by one that is no holder.  A place has one mode, and a claim may  *)
(* pass any of those that stand before it: whom it passes is a matter of time, and of Waiting.tla. *)

Calls(k) ==
  LET absent == IF Alike THEN Least(Ids \ There(k), 1) ELSE Ids \ There(k)
      ids    == There(k) \cup absent
      few    == IF Alike THEN There(k) \cup Least(Ids \ There(k), 2) ELSE Ids
      pairs  == {<<i, j>> \in few \X few : i # j}
      in     == Range(Names(k.line))
      new    == Least(Places \ in, 1)
      places(m) == {0} \cup new \cup {x.place : x \in {y \in Range(k.line) : y.mode = m}}
      PassAll(p) == IF p \in in THEN SUBSET Range(Names(Before(k.line, p))) ELSE {{}}
      waiters   == UNION {UNION {{<<m, p, q>> : q \in PassAll(p)} : p \in places(m)} : m \in Modes}
      all    ==
       {<<"acquire", i, x[1], x[2], x[3], late>> : i \in absent, x \in waiters, late \in Lates}
  \cup {<<"renew", i, late>> : i \in ids, late \in Lates}
  \cup {<<"release", i>> : i \in ids}
  \cup {<<"keep", i, n, late>> : i \in ids, n \in Keeps, late \in Lates}
  \cup {<<"break", i, now>> : i \in ids, now \in BOOLEAN}
  \cup (IF k.mode \in {"none", "exclusive"}
        THEN {<<"transfer", x[1], x[2], late>> : x \in {y \in pairs : y[2] \in absent}, late \in Lates}
             \cup {<<"undo transfer", x[2], x[1]>> : x \in pairs}
        ELSE {})
  \cup {<<"undo", i>> : i \in ids}
  \cup {<<"leave", p>> : p \in in \cup new}
  \cup (IF (There(k) # {} \/ k.line # <<>>) /\ Alive(k) = {} /\ Counting(k.line, {}) = <<>> THEN {<<"sweep">>} ELSE {})
  \cup {<<"tick">>}
  IN {c \in all : c[1] \notin Unasked}

Outcomes(k, c) ==
  CASE c[1] = "acquire"       -> Acquire(k, c[2], c[3], c[4], c[5], c[6])
    [] c[1] = "renew"         -> Renew(k, c[2], c[3])
    [] c[1] = "release"       -> Release(k, c[2])
    [] c[1] = "keep"          -> Keep(k, c[2], c[3], c[4])
    [] c[1] = "break"         -> Break(k, c[2], c[3])
    [] c[1] = "transfer"      -> Transfer(k, c[2], c[3], c[4])
    [] c[1] = "undo"          -> Undo(k, c[2])
    [] c[1] = "undo transfer" -> UndoTransfer(k, c[2], c[3])
    [] c[1] = "leave"         -> Leave(k, c[2])
    [] c[1] = "tick"          -> Tick(k)
    [] c[1] = "sweep"         -> Sweep(k)

Init == key = Free
Next == \E c \in Calls(key) : \E o \in Outcomes(key, c) : key' = o.then
Spec == Init /\ [][Next]_key

-----------------------------------------------------------------------------
(* What must hold of every record. *)

\* One writer, or as many readers or permits as any claim allows.
Together ==
  /\ key.mode = "exclusive" => Cardinality(There(key)) = 1
  /\ key.mode = "permits" => \E m \in Modes : Taken(key) <= Limit(m)
  /\ key.mode = "none" <=> There(key) = {}

\* Nobody stands in line twice.
Once == \A i, j \in 1..Len(key.line) : key.line[i].place = key.line[j].place => i = j

\* A grant leaves enough for all that stay in line before its place, or before the end of the line, by the number of each: nobody
\* overtakes a claim that waits for more permits, or that allows fewer.
Gone       == {j \in 1..Len(key.line) : At(key'.line, key.line[j].place) = 0}
Last       == IF Gone = {} THEN Len(key.line) + 1 ELSE CHOOSE j \in Gone : \A i \in Gone : i <= j
Overtaken  == SelectSeq(Counting(SubSeq(key.line, 1, Last - 1), {}), LAMBDA x : At(key'.line, x.place) > 0)
Comes      == \E i \in Ids : ~key.holders[i].there /\ key'.holders[i].there
Moves      == key.mode = "exclusive" /\ Alive(key) # {}   \* a hand-over
InTurn     == [][(Comes /\ ~Moves /\ Overtaken # <<>>) =>
                 /\ key'.mode # "exclusive"
                 /\ \A j \in 1..Len(Overtaken) : Kind(Overtaken[j].mode) = key'.mode
                 /\ key'.mode = "permits" =>
                      \A j \in 1..Len(Overtaken) : Taken(key') + Asked(Overtaken, Len(Overtaken)) <= Limit(Overtaken[j].mode)]_key

\* With a grant no more permits are taken than its own claim allows, whatever others allow.
Heeded == \A c \in Calls(key) : c[1] = "acquire" /\ Limit(c[3]) > 0 =>
            \A o \in Outcomes(key, c) : o.says[1] = "granted" => Taken(o.then) <= Limit(c[3])

\* What a released or broken holder has left is never more than what a release left it.
Bounded == \A i \in Ids : key.holders[i].left <= TTL \/ key.holders[i].left \in Keeps
=============================================================================
