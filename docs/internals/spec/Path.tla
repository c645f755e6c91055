-------------------------------- MODULE Path --------------------------------
(***************************************************************************)
(* Path locks on MongoDB (docs/internals/pathlock.md): a small tree, and   *)
(* processes each of which wants a lock of one path.  README.md beside     *)
(* this file tells how to run it.  "One document a lock" below, and the    *)
(* other names in quotation marks, are sections of that page.              *)
(*                                                                         *)
(* No command spans two documents, and a lock is one.  So a Lock adds its  *)
(* document as it is meant to stay, looks for those in its way, clears     *)
(* away what is over, and keeps its lock or withdraws it.  No document     *)
(* says whether its Lock has looked yet.  TLC shows within bounds that of  *)
(* two locks in conflict at most one is held, that nobody's lock is        *)
(* removed by another's call while it is held, and that a refresh revives  *)
(* nothing.                                                                *)
(*                                                                         *)
(* The log.  All that a primary applied is in `log`, in that order; a      *)
(* majority has its first `safe` entries, and those stay.  An election     *)
(* keeps any more of it.  A look reads what a majority has and has to show *)
(* its own lock; whichever member answers it, however late, that is a      *)
(* beginning of the log with the lock in it.  So a lock may be granted on  *)
(* each of these.                                                          *)
(*                                                                         *)
(* What is sent.  A process's writes stay in `sent` for ever.  Each may be *)
(* applied at any later time, again whenever its filter matches, or never: *)
(* late, lost and doubled commands, pauses, and kills (a process that      *)
(* takes no more steps).  A write's place in `sent` is its revision.  An   *)
(* add is applied once in one log: the server remembers its number         *)
(* (design.md §4.1).  A removal asks for what stays true: that a           *)
(* revision is over, or that nobody has the token in hand any more.  So    *)
(* one that comes late is one that is sent later, and is not in `sent`.    *)
(*                                                                         *)
(* Time.  A revision is over once real time has reached its end: that is   *)
(* what the rules of §4.3 promise, which Takeover.tla has, with clocks     *)
(* that differ.  Only the date of another election says nothing to who     *)
(* refreshes ("When a lock is over").                                      *)
(*                                                                         *)
(* Doubt.  Rivals guess from the time whether a Lock has looked yet.  In   *)
(* general they may guess wrong, which nothing but who goes on depends on. *)
(* Where Exact they guess right, and TLC shows that of those that want     *)
(* what conflicts not all give up, and none waits for ever.                *)
(*                                                                         *)
(* That an add of unknown outcome is cleaned up it takes for granted:      *)
(* Lock.tla.  Waiters and reservations are not in it.                      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Procs,                   \* who: numbers, which are the order of their tokens
          Paths, Depths, Modes,    \* what a process may want: one of these each
          Attempts,                \* how many tokens a process may use
          MostWrites,              \* how many writes it may send
          Rows,                    \* what there is beyond Lock: "refresh", "at once", "finish", "release", "index"
          TTL, Quickly,            \* Quickly: how much more than a command takes (refreshAtOnce)
          Hour,                    \* the grace of the TTL index
          Exact, Draws,            \* doubt: see above; the times that a server may draw for an add
          MaxNow, MaxElections

VARIABLES
  now, election,  \* real time; the election going on
  wants,          \* wants[p]: the request of p
  sent,           \* sent[p]: the writes of p, in order; <<p, n>> names the nth
  log, safe,      \* what the primary applied, in order; how much of that a majority has
  proc            \* what each process believes

vars == <<now, election, wants, sent, log, safe, proc>>

None == <<>>

-----------------------------------------------------------------------------
(* "When two locks conflict" of package pathlock. *)

Above(path)    == CASE path = "/" -> {} [] path \in {"/a", "/b"} -> {"/"} [] path = "/a/b" -> {"/", "/a"}
Tree           == {"/", "/a", "/b", "/a/b"}
Below(path)    == {x \in Tree : path \in Above(x)}
Reach(r)       == {r.path} \cup (IF r.depth = "infinity" THEN Below(r.path) ELSE {})
Conflict(r, s) == Reach(r) \cap Reach(s) # {} /\ ~(r.mode = "shared" /\ s.mode = "shared")

\* What the find of a look asks for (inTheWay): on the path, above it with depth infinity, and below it.
Asked(r, s) ==
  /\ \/ s.path = r.path
     \/ s.depth = "infinity" /\ s.path \in Above(r.path)
     \/ r.depth = "infinity" /\ s.path \in Below(r.path)
  /\ r.mode = "exclusive" \/ s.mode = "exclusive"

-----------------------------------------------------------------------------
(* Writes, and what a server makes of them. *)

\* op: what it is; of: the number of its attempt; at, in: when it was sent, and under which election; rev: of a refresh, the
\* revision that it names.
Sent(w)  == sent[w[1]][w[2]]
Token(w) == <<w[1], Sent(w).of>>
Tokens   == Procs \X (1..Attempts)

\* An entry of the log is a write that was applied, or the removal of a token's document. late: what was refreshed had run out
\* then, by the clock by which its end was written; counts: its process takes the answer for a yes; drawn: the time that
\* the server drew for an add.
Write(w, late, counts, drawn) == [w |-> w, gone |-> None, late |-> late, counts |-> counts, drawn |-> drawn]
Removal(k)                    == [w |-> None, gone |-> k, late |-> FALSE, counts |-> TRUE, drawn |-> 0]

\* The documents after the first n entries: for each token the revision, the end and the election of its dates, or None.
Doc(w, end) == [rev |-> w, end |-> end, in |-> Sent(w).in]
Max(a, b)   == IF a > b THEN a ELSE b
End(w)      == Sent(w).at + TTL
After(d, e) ==
  IF e.gone # None THEN [d EXCEPT ![e.gone] = None]
  ELSE LET k == Token(e.w) IN
       [d EXCEPT ![k] = Doc(e.w, IF Sent(e.w).op = "at once" THEN Max(d[k].end, End(e.w)) ELSE End(e.w))]

RECURSIVE Docs(_)
Docs(n) == IF n = 0 THEN [k \in Tokens |-> None] ELSE LET d == Docs(n - 1) IN After(d, log[n])

Here == Docs(Len(log))

Place(w)    == CHOOSE i \in 1..Len(log) : log[i].w = w
Applied(w)  == \E i \in 1..Len(log) : log[i].w = w
Answered(w) == \E i \in 1..safe : log[i].w = w       \* a majority has it, so it may be answered
Writes      == UNION {{p} \X (1..Len(sent[p])) : p \in Procs}

Matches(d, w) ==
  LET c == Sent(w)  k == Token(w) IN
  CASE c.op = "add"     -> ~Applied(w)
    [] c.op = "refresh" -> d[k] # None /\ d[k].rev = c.rev
    [] c.op = "finish"  -> d[k] # None /\ d[k].rev = c.rev
    [] c.op = "at once" -> d[k] # None /\ d[k].end > c.at + Quickly /\ d[k].in = c.in /\ ~Applied(w)

\* A refresh that names a revision is judged by the end that it replaced, one at once by the time that it had.
Late(d, w)   == Sent(w).op \in {"refresh", "at once"} /\ now >= d[Token(w)].end /\ d[Token(w)].in = Sent(w).in
Counts(d, w) ==
  CASE Sent(w).op \in {"add", "finish"} -> TRUE
    [] Sent(w).op = "refresh" -> ~Late(d, w)
    [] Sent(w).op = "at once" -> now < Sent(w).at + Quickly

\* Where no election can follow, a majority has each entry at once.
Becomes(e) ==
  /\ log' = Append(log, e)
  /\ safe' = IF election = MaxElections THEN Len(log) + 1 ELSE safe
  /\ UNCHANGED <<now, election, wants, sent, proc>>

Apply(w) ==
  LET d == Here IN
  /\ Matches(d, w)
  /\ \E t \in IF Sent(w).op = "add" THEN Draws ELSE {0} : Becomes(Write(w, Late(d, w), Counts(d, w), t))

Gone(k) == Here[k] # None /\ Becomes(Removal(k))

Commit ==
  /\ safe < Len(log) /\ safe' = safe + 1
  /\ UNCHANGED <<now, election, wants, sent, log, proc>>

\* An election: what no majority had is kept or lost, from some place on (§4.2).
Elect ==
  /\ election < MaxElections /\ election' = election + 1
  /\ \E n \in safe..Len(log) : log' = SubSeq(log, 1, n)
  /\ safe' = IF election' = MaxElections THEN Len(log') ELSE safe
  /\ UNCHANGED <<now, wants, sent, proc>>

Tick ==
  /\ now < MaxNow /\ now' = now + 1
  /\ UNCHANGED <<election, wants, sent, log, safe, proc>>

\* The Lock of a token has looked, and kept it. (Only where doubt is exact does anybody but its process know.)
Granted(k) == proc[k[1]].k > k[2] \/ proc[k[1]].is \in {"held", "done"}

-----------------------------------------------------------------------------
(* Who removes what. *)

\* Clear: any rival, what is over, if it is still as it was seen. What was over once stays so.
Drop(k) == Here[k] # None /\ now >= Here[k].end /\ Gone(k)

\* Withdraw, release, and the clean-up of what nobody will use: by its token, when nobody has that in hand any more.
InHand(k) == proc[k[1]].k = k[2] /\ proc[k[1]].is \in {"asking", "held"}
Remove(k) == ~InHand(k) /\ Gone(k)

\* "Time": a refresh that was applied too late is undone, if it was answered and nobody refreshed the lock since.
Undo(w) ==
  /\ Sent(w).op = "refresh" /\ Answered(w) /\ ~log[Place(w)].counts
  /\ Here[Token(w)] # None /\ Here[Token(w)].rev = w
  /\ Gone(Token(w))

\* The TTL index, by the date.
Sweep(k) == "index" \in Rows /\ Here[k] # None /\ now >= Here[k].end + Hour /\ Gone(k)

-----------------------------------------------------------------------------
(* A process. *)

\* k: its attempt; is: what became of it; by: the write on which its trust rests; out: the one whose answer is awaited.
Nobody == [k |-> 0, is |-> "idle", by |-> None, out |-> None]

Become(p, r) == proc' = [proc EXCEPT ![p] = r] /\ UNCHANGED <<now, election, wants, log, safe>>
Stay(p)      == UNCHANGED sent

Send(p, op, k, rev) ==
  /\ Len(sent[p]) < MostWrites
  /\ sent' = [sent EXCEPT ![p] = Append(@, [op |-> op, of |-> k, at |-> now, in |-> election, rev |-> rev])]
Rev(p) == <<p, Len(sent[p]) + 1>>

\* The add of an attempt.
Adding(k) == CHOOSE w \in Writes : Token(w) = k /\ Sent(w).op = "add"

\* The locks in the way of p's, as the first n entries show them, that are not known to be gone. Those of p itself that it
\* withdrew are as anybody's.
Mine(p) == <<p, proc[p].k>>
InTheWay(p, n) == LET d == Docs(n) IN {k \in Tokens : k # Mine(p) /\ d[k] # None /\ Asked(wants[p], wants[k[1]])}
Cleared(n)     == LET d == Docs(n) s == Docs(safe) IN {k \in Tokens : d[k] # None /\ s[k] = None}

\* The answers that its look may have.
Looks(p) == IF proc[p].is = "asking" /\ Answered(Adding(Mine(p))) THEN Place(Adding(Mine(p)))..safe ELSE {}

\* Whether a lock is taken for one whose Lock has not looked yet.
Doubtful(k) == IF Exact THEN {~Granted(k)} ELSE BOOLEAN

\* By the server's clock, and then by the token. Both are in the two documents.
Drawn(k) == log[Place(Adding(k))].drawn
Before(k, l) == Drawn(k) < Drawn(l) \/ (Drawn(k) = Drawn(l) /\ k[1] < l[1])

\* Add. Another token each time.
Lock(p) ==
  /\ proc[p].is \in {"idle", "done"} /\ proc[p].k < Attempts
  /\ Send(p, "add", proc[p].k + 1, None)
  /\ Become(p, [k |-> proc[p].k + 1, is |-> "asking", by |-> None, out |-> None])

\* Keep: nothing is in the way, or it was over, and a majority has that it was removed.
Clear(p, n) == InTheWay(p, n) \subseteq Cleared(n)
Keep(p, n) ==
  /\ proc[p].is = "asking" /\ proc[p].out = None /\ Clear(p, n)
  /\ Become(p, [proc[p] EXCEPT !.is = "held", !.by = Adding(Mine(p))])
  /\ Stay(p)

\* The same, and its time begins again, if it had to wait (finish). It asks for its own revision.
Finish(p, n) ==
  /\ "finish" \in Rows
  /\ proc[p].is = "asking" /\ proc[p].out = None /\ Clear(p, n)
  /\ Send(p, "finish", proc[p].k, Adding(Mine(p)))
  /\ Become(p, [proc[p] EXCEPT !.out = Rev(p)])
Finished(p) ==
  /\ proc[p].is = "asking" /\ proc[p].out # None /\ Answered(proc[p].out)
  /\ Become(p, [proc[p] EXCEPT !.is = "held", !.by = proc[p].out, !.out = None])
  /\ Stay(p)

\* Withdraw: a lock is in the way that is taken for granted. Or a fault, or a caller who leaves, where doubt is not exact.
Refused(p, n) ==
  /\ proc[p].is = "asking"
  /\ Exact => \E k \in InTheWay(p, n) \ Cleared(n) : FALSE \in Doubtful(k)
  /\ Become(p, [proc[p] EXCEPT !.is = "refused", !.out = None])
  /\ Stay(p)

\* Withdraw, for one in doubt that was added before. (For one that was added after it, it looks again.)
Yield(p, n) ==
  /\ Exact /\ proc[p].is = "asking"
  /\ LET others == InTheWay(p, n) \ Cleared(n) IN
     /\ \A k \in others : TRUE \in Doubtful(k)
     /\ \E k \in others : Before(k, Mine(p))
  /\ Become(p, [proc[p] EXCEPT !.is = "yielded"])
  /\ Stay(p)

\* Once that is removed, it looks before it adds (peek), until no lock in the way is in doubt.
Others(p) == LET d == Here IN {k \in Tokens : d[k] # None /\ Asked(wants[p], wants[k[1]])}
Again(p) ==
  /\ proc[p].is = "yielded" /\ Here[Mine(p)] = None
  /\ \A k \in Others(p) : FALSE \in Doubtful(k)
  /\ IF Others(p) = {}
     THEN /\ proc[p].k < Attempts
          /\ Send(p, "add", proc[p].k + 1, None)
          /\ Become(p, [k |-> proc[p].k + 1, is |-> "asking", by |-> None, out |-> None])
     ELSE Become(p, [proc[p] EXCEPT !.is = "refused"]) /\ Stay(p)

\* Refresh, by its token alone: it reads the lock, at any member that takes itself for the primary, and names the revision
\* that it saw. By the date it judges under one election only. One before it that is not answered is given up.
Lapsed(w) == Sent(w).in = election /\ now >= End(w)
Refresh(p) ==
  /\ "refresh" \in Rows /\ proc[p].is = "held"
  /\ \E w \in Writes :
       /\ Token(w) = Mine(p) /\ Applied(w) /\ ~Lapsed(w)
       /\ Send(p, "refresh", proc[p].k, w)
  /\ Become(p, [proc[p] EXCEPT !.out = Rev(p)])

\* One command, for a lock with more time left than such a command takes (refreshAtOnce).
RefreshAtOnce(p) ==
  /\ "at once" \in Rows /\ proc[p].is = "held"
  /\ Send(p, "at once", proc[p].k, None)
  /\ Become(p, [proc[p] EXCEPT !.out = Rev(p)])

\* The answer to either. One that was applied too late counts for nothing.
Refreshed(p) ==
  LET w == proc[p].out IN
  /\ proc[p].is = "held" /\ w # None /\ Answered(w)
  /\ log[Place(w)].counts
  /\ Become(p, [proc[p] EXCEPT !.by = w, !.out = None])
  /\ Stay(p)

\* Release, by whoever has the token, at any time. Remove sends it.
LetGo(p) ==
  /\ "release" \in Rows /\ proc[p].is = "held"
  /\ Become(p, [proc[p] EXCEPT !.is = "done", !.by = None, !.out = None])
  /\ Stay(p)

-----------------------------------------------------------------------------
Requests == [path : Paths, depth : Depths, mode : Modes]

Init ==
  /\ now = 0 /\ election = 1
  /\ wants \in [Procs -> Requests]
  /\ sent = [p \in Procs |-> <<>>]
  /\ log = <<>> /\ safe = 0
  /\ proc = [p \in Procs |-> Nobody]

Step(p) ==
  \/ Lock(p) \/ Finished(p) \/ Again(p)
  \/ \E n \in Looks(p) : Keep(p, n) \/ Finish(p, n) \/ Yield(p, n) \/ Refused(p, n)
  \/ ~Exact /\ Refused(p, 0)
  \/ Refresh(p) \/ RefreshAtOnce(p) \/ Refreshed(p) \/ LetGo(p)

Next ==
  \/ Tick \/ Commit \/ Elect
  \/ \E w \in Writes : Apply(w) \/ Undo(w)
  \/ \E k \in Tokens : Drop(k) \/ Remove(k) \/ Sweep(k)
  \/ \E p \in Procs : Step(p)

\* What is sent is applied at some time, and who can go on does, by a look that shows all there is.
Progress ==
  \/ \E w \in Writes : Apply(w)
  \/ \E k \in Tokens : Remove(k)
  \/ \E p \in Procs : Lock(p) \/ Again(p) \/ (Looks(p) # {} /\ (Keep(p, safe) \/ Yield(p, safe) \/ Refused(p, safe)))

Spec == Init /\ [][Next]_vars /\ WF_vars(Progress)

-----------------------------------------------------------------------------
(* What must hold. *)

\* The lock of p is held: it was granted, not let go of, and its time is not over.
Held    == {p \in Procs : proc[p].is = "held"}
Live(p) == proc[p].is = "held" /\ now < End(proc[p].by)

\* No two locks in conflict are held at once.
Exclusion == \A p, q \in Held : p # q /\ Live(p) /\ Live(q) => ~Conflict(wants[p], wants[q])

\* What is held is there, and no election takes it away: nobody else's call removed it.
NoCollateral == \A p \in Held : Live(p) => \A n \in safe..Len(log) : Docs(n)[Mine(p)] # None

\* Who was told that a lock was refreshed was told so of one that had not run out.
WasLate(w) == log[Place(w)].late
NoRevival  == \A p \in Held : Live(p) => ~WasLate(proc[p].by)

\* Where doubt is exact: not all of those that want what conflicts with each other are refused.
OneWins == Exact => ~(\A p \in Procs : proc[p].is = "refused")

\* And each Lock is answered.
Decided == \A p \in Procs : <>(proc[p].is \in {"held", "refused", "done"})
=============================================================================
