----------------------------- MODULE PathTrace -----------------------------
(***************************************************************************)
(* A history of the real package pathlock, asked of Path.tla: is it one of *)
(* the behaviours that the specification allows?  package trace makes the  *)
(* histories, one for each run of the simulation with path locks, which    *)
(* has one tree; README.md beside this file tells how to run it.           *)
(*                                                                         *)
(* What conflicts, what a look asks for, which documents a write finds,    *)
(* and the promises are Path's.  What was observed takes the place of      *)
(* choice: which command was sent when, what a primary made of it, what a  *)
(* majority had, what came back, what the users of a lock saw.  Each step  *)
(* has conditions, and Need prints the first that does not hold; the       *)
(* history ends there, and is refused.                                     *)
(*                                                                         *)
(* A process of Path is a lock here, that is a token, which is used once.  *)
(* Nothing is unobserved but what a client has taken in of an answer that  *)
(* came: it may have, from then on.                                        *)
(*                                                                         *)
(* It refines Path where Path is too coarse for a history: each write has  *)
(* a timeout of its own; dates are those of a server, and whether a        *)
(* refresh came late is judged by them, as the library does; a deposed     *)
(* primary has documents of its own; which locks a look finds is read from *)
(* its filter; a refresh that names a revision is begun while its caller   *)
(* waits.  The log is what a majority does not have yet.                   *)
(***************************************************************************)
EXTENDS Path, TLC

CONSTANTS Traces         \* the histories

VARIABLES
  trace, at,             \* which history, and which step of it comes next
  images,                \* the documents that a majority has, and those after each entry of the log
  past, pastSafe,        \* the documents as the primary of the election before has them, which may not know that it was deposed
  looks                  \* what was shown to each look, until it is answered

traceVars == <<trace, at, images, past, pastSafe, looks>>

-----------------------------------------------------------------------------
(* How a history is written. *)

ASSUME TLCSet(1, Traces)        \* so that they are evaluated once
History == TLCGet(1)[trace]
Event   == History.steps[at]

\* A command is a tuple, for TLC takes more time to read a history than to decide about it.
TraceSent(k) ==
  LET t == History.commands[k] IN
  CASE t[2] = "look"   -> [k |-> k, op |-> t[2], p |-> t[3], user |-> t[4], misses |-> t[5], majorly |-> t[6]]
    [] t[2] = "remove" -> [k |-> k, op |-> t[2], p |-> t[3], user |-> t[4], rev |-> t[5]]
    [] t[2] = "add"    -> [k |-> k, op |-> t[2], p |-> t[3], user |-> t[4], rev |-> 0, at |-> t[6], lasts |-> t[7], until |-> t[8], in |-> t[9], wants |-> t[10]]
    [] OTHER -> [k |-> k, op |-> t[2], p |-> t[3], user |-> t[4], rev |-> t[5], at |-> t[6], lasts |-> t[7], until |-> t[8], in |-> t[9], beyond |-> t[10]]
TraceToken(k) == History.commands[k][3]

Need(condition, text) == IF condition THEN TRUE ELSE PrintT(<<"refused", trace, at, text>>) /\ FALSE

\* The paths of the simulation.
TraceTree     == {"/", "/a", "/a/b", "/a/b/c", "/ab", "/d"}
TraceAbove(x) == CASE x = "/" -> {} [] x \in {"/a", "/ab", "/d"} -> {"/"} [] x = "/a/b" -> {"/", "/a"} [] x = "/a/b/c" -> {"/", "/a", "/a/b"}

\* add: its add; ends: when each of its writes that was applied may be taken for over; applied: those in the log; late: refreshes
\* that came late; by: the write on which its holder's trust rests, and told: until when; out: the last that was answered; before: what was in
\* its way when it was added; saws: which others in its way each look showed; gone: those whose removal was answered since; calls, left: a Refresh goes on, or was left then.
Fresh == [is |-> "idle", user |-> 0, add |-> 0, ends |-> <<>>, applied |-> {}, late |-> {}, by |-> 0, told |-> 0, out |-> 0,
          before |-> {}, saws |-> {}, gone |-> {}, calls |-> FALSE, left |-> -1]
Nothing == [p \in Procs |-> None]

TraceInit ==
  /\ trace \in 1..Len(Traces) /\ at = 1
  /\ now = 0 /\ election = 1
  /\ wants = Nothing
  /\ sent = <<>> /\ log = <<>> /\ safe = 0
  /\ images = <<Nothing>> /\ past = Nothing /\ pastSafe = Nothing
  /\ proc = [p \in Procs |-> Fresh]
  /\ looks = {}

Of(p, r) == proc' = [proc EXCEPT ![p] = r]

\* What Path's definitions are here.
TraceMine(p)    == p
TraceDocs(n)    == images[n + 1]
TraceApplied(k) == k \in proc[TraceToken(k)].applied
TraceWasLate(k) == k \in proc[TraceToken(k)].late
TraceHeld       == {p \in Procs : proc[p].is = "held"}

\* By how much a clock is stepped, and a millisecond for what is rounded. A lock's holder trusts it for so much less.
Slack        == History.skew + 10
TraceLive(p) == proc[p].is = "held" /\ now < proc[p].told - Slack

-----------------------------------------------------------------------------
(* What a client may send. *)

SendAdd(c) ==
  /\ Need(proc[c.p].is = "idle", "a token is used once")
  /\ Of(c.p, [proc[c.p] EXCEPT !.is = "asking", !.user = c.user, !.add = c.k])

SendFinish(c) ==
  /\ Need(proc[c.p].is = "asking", "it is granted already, or withdrawn")
  /\ Need(c.rev = proc[c.p].add, "it does not name the revision of its add")
  /\ UNCHANGED proc

\* The driver may hold a command back while it knows of no primary.
SendRefresh(c) ==
  LET a == proc[c.p] IN
  /\ Need(c.rev > 0, "it names no revision")
  /\ Need(a.calls \/ a.left >= c.at, "nobody waits for it any more")
  /\ UNCHANGED proc

\* What is asked for by a filter that looks at the date, and by which the new date is reckoned.
SendAtOnce(c) ==
  /\ Need(c.beyond + 20 >= c.until - c.lasts + Quickly, "it does not ask for enough time left")
  /\ UNCHANGED proc

\* Drop, Withdraw, Undo, Remove.
Over(p, rev) == rev \in DOMAIN proc[p].ends /\ now' >= proc[p].ends[rev] - Slack
SendRemove(c) ==
  LET a == proc[c.p]  withdraws == a.user = c.user /\ c.rev = a.add /\ a.is = "asking"
      takesBack == c.rev = 0 /\ a.user \div 100 = c.user \div 100 /\ a.is = "asking" IN
  /\ Need(c.p # 0, "it names no lock")
  /\ Need(c.rev # -1, "it names a revision that nobody wrote")
  /\ Need(c.rev = 0 => (a.is \in {"refused", "done"} \/ takesBack), "it removes by its token a lock that is in hand")
  /\ Need(c.rev > 0 => (withdraws \/ a.is \in {"refused", "done"} \/ c.rev \in a.late \/ Over(c.p, c.rev)), "it removes a lock that is not over")
  /\ IF (withdraws /\ ~Over(c.p, c.rev)) \/ takesBack THEN Of(c.p, [a EXCEPT !.is = "refused"]) ELSE UNCHANGED proc

Send1(k) ==
  LET c == TraceSent(k) IN
  /\ CASE c.op = "add"     -> SendAdd(c)
       [] c.op = "finish"  -> SendFinish(c)
       [] c.op = "refresh" -> SendRefresh(c)
       [] c.op = "at once" -> SendAtOnce(c)
       [] c.op = "remove"  -> SendRemove(c)
       [] c.op = "look"    -> UNCHANGED proc
       [] OTHER -> Need(FALSE, "it is no command of path locks") /\ UNCHANGED proc
  /\ UNCHANGED <<election, log, images, past, pastSafe, looks>>

-----------------------------------------------------------------------------
(* What a primary makes of it. *)

\* Path's filters; the dates are the server's.
Finds(d, c, deposed) ==
  CASE c.op = "remove"  -> d[c.p] # None /\ (c.rev # 0 => d[c.p].rev = c.rev)
    [] c.op = "at once" -> d[c.p] # None /\ d[c.p].until > c.beyond /\ d[c.p].in = c.in
    [] c.op = "add" /\ deposed -> d[c.p] = None
    [] OTHER -> Matches(d, c.k)

Least(a, b) == IF a < b THEN a ELSE b

\* When a write may be taken for over: after its timeout since its sender reckoned its date. That was before it was sent;
\* and by the clock of the primary that applied it no earlier than its date says, if it was reckoned by that clock.
Drifted(long) == long - (long \div 1000)
EndOf(c, term, clock) ==
  IF c.in \in {0, term} THEN Least(c.at + Drifted(c.lasts), now' + Drifted(c.until - clock)) ELSE c.at + Drifted(c.lasts)

Leaves(d, c, end) ==
  IF c.op = "remove" THEN [d EXCEPT ![c.p] = None]
  ELSE LET old == d[c.p]  Of1(e, u) == [rev |-> c.k, end |-> e, in |-> c.in, until |-> u] IN
       [d EXCEPT ![c.p] = IF c.op = "at once" THEN Of1(Max(old.end, end), Max(old.until, c.until)) ELSE Of1(end, c.until)]

Shows(doc, o) == IF o = <<>> THEN doc = None ELSE doc # None /\ o = <<doc.rev, doc.until, doc.in>>

\* A refresh that names a revision is late if the one that it replaced was over by its date; one at once, if what it asked for may be.
\* From 1000 on are the labels of processes that no server told of an election: such dates are never compared.
IsLate(d, c, clock) ==
  CASE c.op = "refresh" -> c.in < 1000 /\ d[c.p].in = c.in /\ clock >= d[c.p].until
    [] c.op = "at once" -> clock >= c.beyond
    [] OTHER -> FALSE

Run(k, term, clock, o) ==
  LET c == TraceSent(k)
      deposed == term # election
      d == IF deposed THEN past ELSE Here
      after == Leaves(d, c, EndOf(c, term, clock))
      a == proc[c.p]
  IN
  /\ Need(term >= election - 1, "a primary that was deposed long ago executes it")
  /\ Need(Finds(d, c, deposed), "the server has executed what does not match")
  /\ Need(Shows(after[c.p], o), "it leaves another document than the specification says")
  /\ IF deposed
     THEN past' = after /\ UNCHANGED <<log, images>>
     ELSE /\ log' = Append(log, k) /\ images' = Append(images, after)
          /\ past' = past
  /\ IF c.op = "remove" THEN UNCHANGED proc
     ELSE Of(c.p, [a EXCEPT !.ends = (k :> after[c.p].end) @@ @,
                            !.late = IF IsLate(d, c, clock) THEN @ \cup {k} ELSE @ \ {k},
                            !.before = IF c.op = "add" THEN {q \in Procs : d[q] # None /\ Asked(c.wants, wants[q])} ELSE @,
                            !.applied = IF deposed THEN @ ELSE @ \cup {k}])
  /\ UNCHANGED <<election, pastSafe, looks>>

\* A primary that was deposed shows what it has, or what it knew that a majority had.
Look(k, term) ==
  LET c == TraceSent(k)
      d == IF term = election THEN (IF c.majorly THEN images[1] ELSE Here) ELSE IF c.majorly THEN pastSafe ELSE past IN
  /\ Need(term >= election - 1, "a primary that was deposed long ago answers it")
  /\ looks' = looks \cup {[k |-> k, saw |-> {p \in Procs : d[p] # None}]}
  /\ UNCHANGED <<election, log, images, past, pastSafe, proc>>

CommitAll(left) ==
  /\ Need(left <= Len(log), "a majority has lost what it had")
  /\ log' = SubSeq(log, Len(log) - left + 1, Len(log))
  /\ images' = SubSeq(images, Len(images) - left, Len(images))
  /\ UNCHANGED <<election, past, pastSafe, looks, proc>>

ElectOne(term, lost) ==
  LET kept == Len(log) - lost  gone == {log[i] : i \in (kept + 1)..Len(log)} IN
  /\ Need(kept >= 0, "an election has lost what a majority had")
  /\ election' = term /\ past' = Here /\ pastSafe' = images[1]
  /\ log' = SubSeq(log, 1, kept) /\ images' = SubSeq(images, 1, kept + 1)
  /\ proc' = IF lost = 0 THEN proc ELSE [p \in Procs |-> [proc[p] EXCEPT !.applied = @ \ gone]]
  /\ UNCHANGED looks

-----------------------------------------------------------------------------
(* What comes back. *)

InLog(k) == \E i \in 1..Len(log) : log[i] = k

\* A look counts for a lock of its user that is asked for, if it shows that lock, reads what a majority has, and asks for all
\* that may be in its way. (The call that sent it may be one that its caller has left; that makes no difference for the lock.)
Tells(c, saw, p) ==
  /\ proc[p].is = "asking" /\ proc[p].user = c.user
  /\ p \in saw
  /\ History.set => c.majorly
  /\ \A r \in History.misses[c.misses] : ~Asked(wants[p], r)
AnswerLook(c) ==
  LET mine == {l \in looks : l.k = c.k}  saw == UNION {l.saw : l \in mine}  for == {p \in Procs : Tells(c, saw, p)} IN
  /\ looks' = looks \ mine
  /\ proc' = IF for = {} THEN proc
             ELSE [p \in Procs |-> IF p \in for THEN [proc[p] EXCEPT !.saws = @ \cup {{q \in saw \ {p} : Asked(wants[p], wants[q])}}] ELSE proc[p]]

\* The answer to the same command may come once more, when nobody waits for it.
Awaited(c) ==
  LET a == proc[c.p] IN
  CASE c.op = "add"    -> a.is = "asking" /\ a.out = 0
    [] c.op = "finish" -> a.is = "asking"
    [] OTHER -> a.calls

Answer(k) ==
  LET c == TraceSent(k) IN
  /\ Need(c.op = "look" \/ ~InLog(k), "it is answered before a majority has it")
  /\ CASE c.op = "look" -> AnswerLook(c)
       [] c.op = "remove" ->
            /\ Need(images[1][c.p] = None, "it is answered before a majority has it")
            /\ proc' = [p \in Procs |-> IF proc[p].is = "asking" /\ proc[p].user = c.user THEN [proc[p] EXCEPT !.gone = @ \cup {c.p}] ELSE proc[p]]
            /\ UNCHANGED looks
       [] OTHER ->
            /\ Of(c.p, [proc[c.p] EXCEPT !.out = IF Awaited(c) THEN k ELSE @])
            /\ UNCHANGED looks
  /\ UNCHANGED <<election, log, images, past, pastSafe>>

\* Path's Keep and Finished: of what was in its way when it was added, a majority has nothing. Its own look has to say so.
Has(p, until) ==
  LET a == proc[p] IN
  /\ Need(a.is = "asking", "it was withdrawn, or granted before")
  /\ Need(a.out # 0, "no answer says that it was added")
  /\ Need(a.saws # {}, "no look that asks for all in its way has shown it since it was added")
  /\ Need(\E saw \in a.saws : saw \subseteq a.gone, "each look showed a lock in its way")
  /\ Need(\A q \in a.before : images[1][q] = None, "a lock in its way was added before it, and is there")
  /\ Need(until <= a.ends[a.out] + Slack, "its holder may trust it for longer than it lasts")
  /\ Of(p, [a EXCEPT !.is = "held", !.by = a.out, !.told = until, !.before = {}, !.saws = {}, !.gone = {}])
  /\ UNCHANGED <<election, log, images, past, pastSafe, looks>>

Calls(p, until) ==
  /\ Of(p, [proc[p] EXCEPT !.calls = TRUE, !.out = 0, !.told = Least(@, until)])
  /\ UNCHANGED <<election, log, images, past, pastSafe, looks>>

Left(p) ==
  /\ Of(p, [proc[p] EXCEPT !.calls = FALSE, !.left = now'])
  /\ UNCHANGED <<election, log, images, past, pastSafe, looks>>

\* Path's Refreshed.
IsRefreshed(p, until) ==
  LET a == proc[p] IN
  /\ Need(a.out # 0, "no answer says that it was refreshed")
  /\ Need(a.out \notin a.late, "it was refreshed when it was over")
  /\ Need(until <= a.ends[a.out] + Slack, "its holder may trust it for longer than it lasts")
  /\ Of(p, [a EXCEPT !.by = a.out, !.told = until, !.calls = FALSE, !.left = now'])
  /\ UNCHANGED <<election, log, images, past, pastSafe, looks>>

IsLetGo(p) ==
  /\ Of(p, [proc[p] EXCEPT !.is = IF @ = "held" THEN "done" ELSE @])
  /\ UNCHANGED <<election, log, images, past, pastSafe, looks>>

\* Nothing more comes of this lock; another one has its number from now on. free: nothing kept its client from cleaning it up.
Forget(p, free) ==
  LET Less(d) == [d EXCEPT ![p] = None] IN
  /\ Need(free => proc[p].is # "asking", "a lock that nobody was granted was not removed")
  /\ images' = [i \in 1..Len(images) |-> Less(images[i])]
  /\ past' = Less(past) /\ pastSafe' = Less(pastSafe)
  /\ looks' = {[l EXCEPT !.saw = @ \ {p}] : l \in looks}
  /\ proc' = [q \in Procs |-> IF q = p THEN Fresh
                             ELSE IF proc[q].is = "asking" THEN [proc[q] EXCEPT !.before = @ \ {p}, !.saws = {saw \ {p} : saw \in @}, !.gone = @ \ {p}]
                             ELSE proc[q]]
  /\ UNCHANGED <<election, log>>

TheEnd ==
  /\ PrintT(<<"allowed", trace, at>>)
  /\ UNCHANGED <<election, log, images, past, pastSafe, looks, proc>>

-----------------------------------------------------------------------------
Do(e) ==
  CASE e[2] = "send"      -> Send1(e[3])
    [] e[2] = "run"       -> Run(e[3], e[4], e[5], e[6])
    [] e[2] = "look"      -> Look(e[3], e[4])
    [] e[2] = "answer"    -> Answer(e[3])
    [] e[2] = "commit"    -> CommitAll(e[3])
    [] e[2] = "elect"     -> ElectOne(e[3], e[4])
    [] e[2] = "has"       -> Has(e[3], e[4])
    [] e[2] = "calls"     -> Calls(e[3], e[4])
    [] e[2] = "left"      -> Left(e[3])
    [] e[2] = "refreshed" -> IsRefreshed(e[3], e[4])
    [] e[2] = "lets go"   -> IsLetGo(e[3])
    [] e[2] = "forget"    -> Forget(e[3], e[4])
    [] e[2] = "over"      -> TheEnd

Promised ==
  /\ Need(Exclusion', "Exclusion")
  /\ Need(NoCollateral', "NoCollateral")
  /\ Need(NoRevival', "NoRevival")

\* What a lock asks for is known from its add.
Adds == Event[2] = "send" /\ History.commands[Event[3]][2] = "add"

\* now' is the time of the step: its conditions ask for that, and so do the promises, which speak of the state after it.
TraceNext ==
  /\ at <= Len(History.steps)
  /\ now' = Event[1]
  /\ Do(Event)
  /\ at' = at + 1
  /\ wants' = IF Adds THEN [wants EXCEPT ![TraceToken(Event[3])] = TraceSent(Event[3]).wants] ELSE wants
  /\ UNCHANGED <<sent, safe, trace>>
  /\ Promised

\* All that there is of a history at a step follows from the steps before.
Where == <<trace, at>>

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, traceVars>>
=============================================================================
