-------------------------------- MODULE Assign --------------------------------
(***************************************************************************)
(* Partitions that workers share (assign.md).  A worker looks who is there *)
(* and who has what, and decides which partitions it asks for and which it *)
(* gives up.  What it decided happens later, in any order, when others     *)
(* have decided something else.  A partition is worked on under the lease  *)
(* of its key, which is granted to the first in line.                      *)
(*                                                                         *)
(* The plans of two workers may differ if one of them looks while what     *)
(* another decided is under way; so in theory partitions could go to and   *)
(* fro for ever.  Looks are some time apart, of random length, and most    *)
(* decisions take less.  So once nothing comes, goes or fails any more, a  *)
(* worker looks here when all that was decided is done.                    *)
(*                                                                         *)
(* Taken for granted: the promises of a lease.  It is granted to one at a  *)
(* time, and that of a process which is cut off ends once its work was     *)
(* stopped (Lock.tla); its line serves all who wait (Waiting.tla).         *)
(* A process that died works no more, and its leases end later, each by    *)
(* itself.  Left out: weights, and Settle, which only puts off steps.      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Workers,   \* numbers: the order in which the plan deals
          N,         \* how many partitions there are
          Changes    \* how often a worker may come, go, die or be cut off

VARIABLES
  seats,    \* the workers that have one
  holder,   \* of each partition's key, or None
  line,     \* of each
  does,     \* what each worker does: out, works, drains, dead, cut (from the store)
  busy,     \* the partitions that each works on
  wants,    \* those that each asks for
  told,     \* those of busy whose work is told to return
  changes   \* how many are left

vars  == <<seats, holder, line, does, busy, wants, told, changes>>
Parts == 1..N
None  == 0

Init ==
  /\ seats = {} /\ holder = [p \in Parts |-> None] /\ line = [p \in Parts |-> <<>>]
  /\ does = [w \in Workers |-> "out"] /\ busy = [w \in Workers |-> {}]
  /\ wants = [w \in Workers |-> {}] /\ told = [w \in Workers |-> {}] /\ changes = Changes

-----------------------------------------------------------------------------
(* The plan: a function of who is there, and of who has what. *)

RECURSIVE Sum(_, _)
Sum(f, S) == IF S = {} THEN 0 ELSE LET w == CHOOSE w \in S : TRUE IN f[w] + Sum(f, S \ {w})

Rank(w)   == Cardinality({v \in seats : v < w})
Quota(w)  == N \div Cardinality(seats) + (IF Rank(w) < N % Cardinality(seats) THEN 1 ELSE 0)
Has(w)    == {p \in Parts : holder[p] = w}
Keeps(w)  == {p \in Has(w) : Cardinality({q \in Has(w) : q < p}) < Quota(w)}
Kept      == UNION {Keeps(w) : w \in seats}
Lacks     == [w \in seats |-> Quota(w) - Cardinality(Keeps(w))]
To(p)     == LET place == Cardinality({q \in Parts \ Kept : q < p}) + 1
             IN CHOOSE w \in seats : /\ Sum(Lacks, {u \in seats : u < w}) < place
                                     /\ place <= Sum(Lacks, {u \in seats : u <= w})
Plan(w)   == Keeps(w) \cup {p \in Parts \ Kept : To(p) = w}

-----------------------------------------------------------------------------
(* A worker. *)

In(w, p)      == \E i \in 1..Len(line[p]) : line[p][i] = w
Without(w, s) == SelectSeq(s, LAMBDA v : v # w)
Runs(w)       == does[w] \in {"works", "drains"}
Change        == changes > 0 /\ changes' = changes - 1

\* It holds leases that it renews no more, and works no more.
Silent(w)     == does[w] = "dead" \/ (does[w] = "cut" /\ busy[w] = {})

Come(w) ==
  /\ Change /\ does[w] = "out" /\ does' = [does EXCEPT ![w] = "works"] /\ seats' = seats \cup {w}
  /\ UNCHANGED <<holder, line, busy, wants, told>>

Go(w) ==
  /\ Change /\ does[w] = "works" /\ does' = [does EXCEPT ![w] = "drains"] /\ seats' = seats \ {w}
  /\ wants' = [wants EXCEPT ![w] = {}]
  /\ UNCHANGED <<holder, line, busy, told>>

\* What it has and should not have, it gives up if another waits for it.
Others(w) == {p \in busy[w] : line[p] # <<>>}

Done == \A p \in Parts : /\ holder[p] = None => line[p] = <<>>
                          /\ \A w \in Workers : /\ p \notin told[w] /\ (p \in wants[w]) = In(w, p)
                                                /\ ~(Silent(w) /\ holder[p] = w)

Look(w) ==
  /\ does[w] = "works" /\ w \in seats /\ (changes > 0 \/ Done)
  /\ wants' = [wants EXCEPT ![w] = Plan(w) \ Has(w)]
  /\ told'  = [told EXCEPT ![w] = @ \cup (Others(w) \ Plan(w))]
  /\ UNCHANGED <<seats, holder, line, does, busy, changes>>

\* One that drains gives up what others wait for; when its time is over, or no other is there, all.
Drain(w) ==
  /\ does[w] = "drains" /\ \E S \in {Others(w), busy[w]} : told' = [told EXCEPT ![w] = @ \cup S]
  /\ UNCHANGED <<seats, holder, line, does, busy, wants, changes>>

Ask(w, p) ==
  /\ Runs(w) /\ p \in wants[w] /\ holder[p] # w /\ ~In(w, p) /\ line' = [line EXCEPT ![p] = Append(@, w)]
  /\ UNCHANGED <<seats, holder, does, busy, wants, told, changes>>

GiveUp(w, p) ==
  /\ Runs(w) /\ p \notin wants[w] /\ In(w, p) /\ line' = [line EXCEPT ![p] = Without(w, @)]
  /\ UNCHANGED <<seats, holder, does, busy, wants, told, changes>>

\* A grant that comes when it is not wanted any more is given back.
Grant(p) ==
  /\ holder[p] = None /\ line[p] # <<>>
  /\ LET w == Head(line[p]) IN
       /\ Runs(w) /\ holder' = [holder EXCEPT ![p] = w] /\ busy' = [busy EXCEPT ![w] = @ \cup {p}]
       /\ told' = [told EXCEPT ![w] = IF p \in wants[w] THEN @ ELSE @ \cup {p}]
       /\ wants' = [wants EXCEPT ![w] = @ \ {p}]
  /\ line' = [line EXCEPT ![p] = Tail(@)]
  /\ UNCHANGED <<seats, does, changes>>

Stop(w, p) ==
  /\ Runs(w) /\ p \in told[w] /\ p \in busy[w] /\ busy' = [busy EXCEPT ![w] = @ \ {p}]
  /\ UNCHANGED <<seats, holder, line, does, wants, told, changes>>

Release(w, p) ==
  /\ Runs(w) /\ p \in told[w] /\ holder[p] = w /\ p \notin busy[w]
  /\ holder' = [holder EXCEPT ![p] = None] /\ told' = [told EXCEPT ![w] = @ \ {p}]
  /\ UNCHANGED <<seats, line, does, busy, wants, changes>>

Gone(w) ==
  /\ does[w] = "drains" /\ Has(w) = {} /\ \A p \in Parts : ~In(w, p)
  /\ does' = [does EXCEPT ![w] = "out"]
  /\ UNCHANGED <<seats, holder, line, busy, wants, told, changes>>

-----------------------------------------------------------------------------
(* What goes wrong. *)

Die(w) ==
  /\ Change /\ Runs(w) /\ does' = [does EXCEPT ![w] = "dead"] /\ busy' = [busy EXCEPT ![w] = {}]
  /\ wants' = [wants EXCEPT ![w] = {}] /\ told' = [told EXCEPT ![w] = {}]
  /\ UNCHANGED <<seats, holder, line>>

CutOff(w) ==
  /\ Change /\ does[w] = "works" /\ does' = [does EXCEPT ![w] = "cut"]
  /\ wants' = [wants EXCEPT ![w] = {}] /\ told' = [told EXCEPT ![w] = {}]
  /\ UNCHANGED <<seats, holder, line, busy>>

\* Its leases are about to end.
StopAll(w) ==
  /\ does[w] = "cut" /\ busy[w] # {} /\ busy' = [busy EXCEPT ![w] = {}]
  /\ UNCHANGED <<seats, holder, line, does, wants, told, changes>>

ExpireSeat(w) ==
  /\ Silent(w) /\ w \in seats /\ seats' = seats \ {w}
  /\ UNCHANGED <<holder, line, does, busy, wants, told, changes>>

ExpirePart(w, p) ==
  /\ Silent(w) /\ holder[p] = w /\ holder' = [holder EXCEPT ![p] = None]
  /\ UNCHANGED <<seats, line, does, busy, wants, told, changes>>

Pass(w, p) ==
  /\ Silent(w) /\ In(w, p) /\ line' = [line EXCEPT ![p] = Without(w, @)]
  /\ UNCHANGED <<seats, holder, does, busy, wants, told, changes>>

\* It finds that its seat is lost, and may come as a new worker.
Back(w) ==
  /\ does[w] = "cut" /\ busy[w] = {} /\ w \notin seats /\ Has(w) = {} /\ \A p \in Parts : ~In(w, p)
  /\ does' = [does EXCEPT ![w] = "out"]
  /\ UNCHANGED <<seats, holder, line, busy, wants, told, changes>>

\* No more changes come.
Enough == changes > 0 /\ changes' = 0 /\ UNCHANGED <<seats, holder, line, does, busy, wants, told>>

-----------------------------------------------------------------------------

Changed(w) == Come(w) \/ Go(w) \/ Die(w) \/ CutOff(w)

\* Each of these steps leaves fewer of them to do, so none is put off for ever.
Rest(w) == \/ Gone(w) \/ StopAll(w) \/ ExpireSeat(w) \/ Back(w)
           \/ \E p \in Parts : Ask(w, p) \/ GiveUp(w, p) \/ Stop(w, p) \/ Release(w, p) \/ ExpirePart(w, p) \/ Pass(w, p)

Fair    == /\ \A w \in Workers : WF_vars(Look(w)) /\ WF_vars(Drain(w)) /\ WF_vars(Rest(w))
           /\ WF_vars(Enough) /\ WF_vars(\E p \in Parts : Grant(p))
Next    == \/ \E w \in Workers : Changed(w) \/ Look(w) \/ Drain(w) \/ Rest(w)
           \/ Enough \/ \E p \in Parts : Grant(p)
Spec    == Init /\ [][Next]_vars /\ Fair

-----------------------------------------------------------------------------

\* No two workers work on a partition at once, and whoever does has its lease.
Exclusion == /\ \A p \in Parts : Cardinality({w \in Workers : p \in busy[w]}) <= 1
             /\ \A w \in Workers : \A p \in busy[w] : holder[p] = w

\* The plan deals each partition to one worker.
Whole == seats # {} => /\ \A p \in Parts \ Kept : \E u \in seats : To(p) = u
                       /\ Sum([u \in seats |-> Quota(u)], seats) = N

\* In the end each partition is worked on, and each worker that is there has its share.
Shared == seats # {} => /\ \A p \in Parts : \E w \in seats : p \in busy[w]
                        /\ \A w \in seats : Cardinality(busy[w]) = Quota(w)
Owned  == <>[]Shared

\* No worker that stays gives up what no other waits for, but for what it no longer asked for.
Warm == [][\A w \in Workers, p \in Parts : does[w] = "works" /\ p \in told'[w] /\ p \notin told[w] => line[p] # <<>>]_vars
=============================================================================
