------------------------------ MODULE Document ------------------------------
(***************************************************************************)
(* Locks inside documents (package doclock): one document, and processes   *)
(* that change it.  README.md beside this file tells how to run it.        *)
(*                                                                         *)
(* A Locker claims the document (majority), may renew its lease and save   *)
(* under it, and saves and releases in one step.  An Updater calls         *)
(* doclock.Update (design.md §4.10): a claim under w: 1, which is sent     *)
(* once; a value computed from the image; and one save and release, which  *)
(* waits for a majority.  TLC shows within bounds that no save writes over *)
(* another, that a change that was acknowledged is there once and stays,   *)
(* and that none is there of which the caller was told that it was surely  *)
(* not made; and that no two Lockers trust the document at once.           *)
(*                                                                         *)
(* The value is the list of the changes that were made: a save writes what *)
(* the claim's image had, and its own behind it.  So a lost update is a    *)
(* list that does not begin with the one before.                           *)
(*                                                                         *)
(* The log.  All that a primary applied is in `log`, in that order; a      *)
(* majority has its first `safe` entries, and those stay.  An election     *)
(* keeps any more of it (§4.2).                                            *)
(*                                                                         *)
(* What is sent.  A process's writes stay in `sent` for ever.  Each may be *)
(* applied at any later time, again whenever its filter matches and the    *)
(* log does not have it (the server remembers its number, §4.1), or never: *)
(* lost, late and doubled commands, pauses, and kills.  An Updater's claim *)
(* has no number, and goes out once: what a primary has had of it is not   *)
(* sent again, though that primary's log be lost.  A write's place in      *)
(* `sent` is its beat.                                                     *)
(*                                                                         *)
(* Taken for granted.  An end that is judged past is past (Takeover.tla).  *)
(* A rival may judge by any write that was ever sent, which is more than   *)
(* the stalest look shows it.  A lock that nobody has in hand is removed   *)
(* by its id at some time, or never: release, and clean-up (Lock.tla).     *)
(* Transactions, hand-overs, MinHold, break, a line, and claims of one of  *)
(* many are not in it.                                                     *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Lockers, Updaters,   \* who
          Busy, Rounds,        \* how many locks those who are busy may claim, one after the other; the others, one
          MostWrites, Changes,     \* how many writes each may send, and how many changes it wants to make
          Rows,                \* beyond claim, take over, save and release: "renew", "save", "again" (a save that is sent once more)
          TTL, MaxNow, MaxElections

VARIABLES
  now, election,  \* real time; the election going on
  sent,           \* sent[p]: the writes of p, in order; <<p, n>> names the nth
  log, safe,      \* what the primary applied, in order; how much of that a majority has
  once,           \* of the claims that go out once, those that a primary has had, with the image that it answered
  told,           \* told[c]: what its process was told of a change
  proc            \* what each process believes

vars == <<now, election, sent, log, safe, once, told, proc>>

None  == <<>>
Procs == Lockers \cup Updaters

-----------------------------------------------------------------------------
(* Writes, and what a server makes of them. *)

\* op: what it is; of: the number of its round; at: when it was sent; drops: of a claim, the beat of the holder whose place it
\* takes, or None; val, no: of a save, the value, and the save's number among those of its round.
Sent(w) == sent[w[1]][w[2]]
End(w)  == Sent(w).at + TTL
Id(w)   == <<w[1], Sent(w).of>>
Writes  == UNION {{p} \X (1..Len(sent[p])) : p \in Procs}

\* An entry of the log is a write that was applied, or the removal of a lock by its id. The document after the first n entries:
\* the lock's id, its last write and its last save, if there is a lock; and the value.
Unlocked == [id |-> None, beat |-> None, saves |-> 0]
After(d, e) ==
  IF e.w = None THEN [d EXCEPT !.lock = Unlocked]
  ELSE LET c == Sent(e.w) IN
       CASE c.op = "claim"  -> [d EXCEPT !.lock = [id |-> Id(e.w), beat |-> e.w, saves |-> 0]]
         [] c.op = "renew"  -> [d EXCEPT !.lock.beat = e.w]
         [] c.op = "save"   -> [d EXCEPT !.lock.saves = c.no, !.val = c.val]
         [] c.op = "finish" -> [lock |-> Unlocked, val |-> c.val]

RECURSIVE Doc(_)
Doc(n) == IF n = 0 THEN [lock |-> Unlocked, val |-> <<>>] ELSE LET d == Doc(n - 1) IN After(d, log[n])
Here   == Doc(Len(log))

\* The filters of "The commands" in docs/internals/doclock.md.
Holds(d, id) == d.lock.id = id
Matches(d, w) ==
  LET c == Sent(w) IN
  CASE c.op = "claim"  -> d.lock.beat = c.drops       \* nobody's; or the holder and the beat that the image showed
    [] c.op = "renew"  -> Holds(d, Id(w)) /\ d.lock.beat[2] < w[2]
    [] c.op = "save"   -> Holds(d, Id(w)) /\ d.lock.saves < c.no
    [] c.op = "finish" -> Holds(d, Id(w))

Place(w)    == CHOOSE i \in 1..Len(log) : log[i].w = w
Applied(w)  == \E i \in 1..Len(log) : log[i].w = w
Answered(w) == \E i \in 1..safe : log[i].w = w       \* a majority has it
Single(w)   == w[1] \in Updaters /\ Sent(w).op = "claim"
Spent(w)    == \E o \in once : o.w = w

\* Where no election can follow, a majority has each entry at once.
Becomes(e) ==
  /\ log' = Append(log, e)
  /\ safe' = IF election = MaxElections THEN Len(log) + 1 ELSE safe
  /\ UNCHANGED <<now, election, sent, told, proc>>

Apply(w) ==
  LET d == Here IN
  /\ Matches(d, w) /\ ~Applied(w)
  /\ Single(w) => ~Spent(w)
  /\ once' = IF Single(w) THEN once \cup {[w |-> w, val |-> d.val]} ELSE once
  /\ Becomes([w |-> w, gone |-> None])

Commit ==
  /\ safe < Len(log) /\ safe' = safe + 1
  /\ UNCHANGED <<now, election, sent, log, once, told, proc>>

\* An election: what no majority had is kept or lost, from some place on.
Elect ==
  /\ election < MaxElections /\ election' = election + 1
  /\ \E n \in safe..Len(log) : log' = SubSeq(log, 1, n)
  /\ safe' = IF election' = MaxElections THEN Len(log') ELSE safe
  /\ UNCHANGED <<now, sent, once, told, proc>>

Tick ==
  /\ now < MaxNow /\ now' = now + 1
  /\ UNCHANGED <<election, sent, log, safe, once, told, proc>>

-----------------------------------------------------------------------------
(* A process. *)

\* k: the number of its round, which is the lock's id; is: how far it is; val: its value; by: the write on which its trust rests;
\* n: how many changes it has begun; no: how many saves this round; out: the save whose answer is awaited; doubt: the answer of
\* another save of this change was lost.
Nobody == [k |-> 0, is |-> "idle", val |-> <<>>, by |-> None, n |-> 0, no |-> 0, out |-> None, doubt |-> FALSE]

Become(p, r) == proc' = [proc EXCEPT ![p] = r] /\ UNCHANGED <<now, election, log, safe, once>>
Stay         == UNCHANGED <<sent, told>>

Send(p, op, of, drops, val, no) ==
  /\ Len(sent[p]) < MostWrites
  /\ sent' = [sent EXCEPT ![p] = Append(@, [op |-> op, of |-> of, at |-> now, drops |-> drops, val |-> val, no |-> no])]
Beat(p) == <<p, Len(sent[p]) + 1>>

\* A change is <<p, i>>. What is told of it: it was made, it surely was not, or either.
Tell(p, what) == told' = [told EXCEPT ![<<p, proc[p].n>>] = what]

InHand(id) == proc[id[1]].k = id[2] /\ proc[id[1]].is \in {"asking", "held", "saving"}

\* release, clean up: by the id, when nobody has that in hand.
Remove ==
  /\ Here.lock.id # None /\ ~InHand(Here.lock.id)
  /\ once' = once
  /\ Becomes([w |-> None, gone |-> Here.lock.id])

\* acquire, take over: where nobody is, or in the place of a holder that is over, who is named with its beat. An Updater whose claim
\* was not answered, or whose save was lost, asks again for the same change, under another id.
Claim(p) ==
  /\ \/ proc[p].is = "idle" /\ (p \in Updaters => proc[p].n < Changes)
     \/ proc[p].is = "lost" /\ p \in Updaters
     \/ proc[p].is = "asking" /\ p \in Updaters
  /\ proc[p].k < IF p \in Busy THEN Rounds ELSE 1
  /\ \E d \in {None} \cup {w \in Writes : Sent(w).op \in {"claim", "renew"} /\ now >= End(w)} : Send(p, "claim", proc[p].k + 1, d, <<>>, 0)
  /\ Become(p, [proc[p] EXCEPT !.k = @ + 1, !.is = "asking", !.by = Beat(p), !.no = 0, !.out = None, !.doubt = FALSE,
                               !.n = IF p \in Updaters /\ proc[p].is = "idle" THEN @ + 1 ELSE @])
  /\ UNCHANGED told

\* The answer, with the value: of a majority to a Locker, of one node to an Updater.
Granted(p) ==
  LET w == proc[p].by IN
  /\ proc[p].is = "asking"
  /\ IF p \in Updaters
     THEN \E o \in once : o.w = w /\ Become(p, [proc[p] EXCEPT !.is = "held", !.val = o.val])
     ELSE Answered(w) /\ now < End(w) /\ Become(p, [proc[p] EXCEPT !.is = "held", !.val = Doc(Place(w) - 1).val])
  /\ Stay

\* Nobody waits for it any more; or the function failed, or the lease is over: surely nothing was made.
LetGo(p) ==
  /\ proc[p].is \in {"asking", "held"} /\ proc[p].out = None
  /\ Become(p, [proc[p] EXCEPT !.is = "idle", !.by = None])
  /\ IF p \in Updaters THEN Tell(p, "not") ELSE UNCHANGED told
  /\ UNCHANGED sent

\* renew: the beat is greater. Trust counts from before it was sent, once a majority has it; it ends before a save and release
\* is sent.
Trusts(p) == p \in Lockers /\ proc[p].is = "held" /\ now < End(proc[p].by)
Renew(p) ==
  /\ "renew" \in Rows /\ Trusts(p)
  /\ Send(p, "renew", proc[p].k, None, <<>>, 0)
  /\ Become(p, proc[p]) /\ UNCHANGED told
Renewed(p) ==
  /\ Trusts(p)
  /\ \E w \in Writes : /\ w[1] = p /\ Sent(w).op = "renew" /\ Sent(w).of = proc[p].k /\ Answered(w) /\ w[2] > proc[p].by[2]
                     /\ Become(p, [proc[p] EXCEPT !.by = w])
  /\ Stay

\* save: a Locker's, which keeps the lock. Each has a number, and writes all that was changed so far.
Save(p) ==
  /\ "save" \in Rows /\ Trusts(p)
  /\ proc[p].n < Changes
  /\ LET v == Append(proc[p].val, <<p, proc[p].n + 1>>) IN
     /\ Send(p, "save", proc[p].k, None, v, proc[p].no + 1)
     /\ Become(p, [proc[p] EXCEPT !.val = v, !.n = @ + 1, !.no = @ + 1, !.out = Beat(p)])
  /\ told' = [told EXCEPT ![<<p, proc[p].n + 1>>] = "either"]

\* save and release, of the change that an Updater wants, or another one of a Locker.
Finish(p) ==
  /\ proc[p].is = "held" /\ (p \in Lockers => Trusts(p) /\ proc[p].n < Changes)
  /\ LET i == IF p \in Lockers THEN proc[p].n + 1 ELSE proc[p].n
         v == Append(proc[p].val, <<p, i>>) IN
     /\ Send(p, "finish", proc[p].k, None, v, 0)
     /\ Become(p, [proc[p] EXCEPT !.is = "saving", !.val = v, !.n = i, !.out = Beat(p), !.doubt = FALSE])
     /\ told' = [told EXCEPT ![<<p, i>>] = "either"]

\* The answer: it is there, with all that the value has, and a majority has it.
Saved(p) ==
  LET w == proc[p].out IN
  /\ w # None /\ Answered(w)
  /\ Become(p, [proc[p] EXCEPT !.out = None, !.is = IF @ = "saving" THEN "idle" ELSE @])
  /\ told' = [c \in DOMAIN told |-> IF \E i \in 1..Len(Sent(w).val) : Sent(w).val[i] = c THEN "made" ELSE told[c]]
  /\ UNCHANGED sent

\* It has found no lock of this id. An answer under majority waits for all that the primary has. The caller is told that nothing
\* was made, unless an answer of this change was lost; then it may have been.
Missed(p) ==
  LET w == proc[p].out IN
  /\ w # None /\ ~Applied(w)
  /\ safe = Len(log) /\ ~Holds(Here, Id(w))
  /\ Become(p, [proc[p] EXCEPT !.out = None, !.by = None, !.is = IF p \in Updaters /\ ~proc[p].doubt THEN "lost" ELSE "idle"])
  /\ IF proc[p].doubt THEN UNCHANGED told ELSE Tell(p, IF p \in Updaters THEN "either" ELSE "not")
  /\ UNCHANGED sent

\* An Updater that has lost its lock asks again (Claim), or its context has ended: surely nothing was made.
LeftLost(p) ==
  /\ proc[p].is = "lost"
  /\ Become(p, [proc[p] EXCEPT !.is = "idle"])
  /\ Tell(p, "not") /\ UNCHANGED sent

\* The answer is lost. It is sent once more, as a command of its own; or its caller is told that the outcome is unknown.
Again(p) ==
  /\ "again" \in Rows /\ proc[p].is = "saving" /\ proc[p].out # None /\ ~proc[p].doubt
  /\ Send(p, "finish", proc[p].k, None, proc[p].val, 0)
  /\ Become(p, [proc[p] EXCEPT !.out = Beat(p), !.doubt = TRUE])
  /\ UNCHANGED told
Unknown(p) ==
  /\ proc[p].out # None
  /\ Become(p, [proc[p] EXCEPT !.out = None, !.is = IF @ = "saving" THEN "idle" ELSE @])
  /\ Stay

-----------------------------------------------------------------------------
Init ==
  /\ now = 0 /\ election = 1
  /\ sent = [p \in Procs |-> <<>>]
  /\ log = <<>> /\ safe = 0 /\ once = {}
  /\ told = [c \in Procs \X (1..Changes) |-> "nothing"]
  /\ proc = [p \in Procs |-> Nobody]

Next ==
  \/ Tick \/ Commit \/ Elect \/ Remove
  \/ \E w \in Writes : Apply(w)
  \/ \E p \in Procs :
       \/ Claim(p) \/ Granted(p) \/ LetGo(p) \/ Renew(p) \/ Renewed(p)
       \/ Save(p) \/ Finish(p) \/ Saved(p) \/ Missed(p) \/ LeftLost(p) \/ Again(p) \/ Unknown(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. *)

Begins(s, t) == Len(s) <= Len(t) /\ SubSeq(t, 1, Len(s)) = s
Times(c, v)  == Cardinality({i \in 1..Len(v) : v[i] = c})
Made         == DOMAIN told

\* No save writes over another: each value begins with the one before.
NoLostUpdate == \A n \in 1..Len(log) : Begins(Doc(n - 1).val, Doc(n).val)

\* What was acknowledged is there, and no election takes it away.
Acknowledged == \A c \in Made : told[c] = "made" => \A n \in safe..Len(log) : Times(c, Doc(n).val) > 0

\* No change is made twice.
Once == \A c \in Made : Times(c, Here.val) <= 1

\* Of no change that is there was it told that it surely is not, or never begun.
SurelyNot == \A c \in Made : told[c] \in {"not", "nothing"} => Times(c, Here.val) = 0

\* No two processes trust a lease of the document at once. (What an Updater has is no lease: it must not act on it.)
Exclusion == \A p, q \in Lockers : Trusts(p) /\ Trusts(q) => p = q

\* A Locker's lock that is in hand is there: nobody else's call removes it.
NoCollateral ==
  \A p \in Lockers : Trusts(p) => \A n \in safe..Len(log) : Doc(n).lock.id = <<p, proc[p].k>>
=============================================================================
