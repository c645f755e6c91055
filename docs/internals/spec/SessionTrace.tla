---------------------------- MODULE SessionTrace ----------------------------
(***************************************************************************)
(* A history of the real library with sessions (design.md §4.11), asked of *)
(* Session.tla: is it one of the behaviours that the specification allows? *)
(* package trace makes the histories, one for each key of a run of the     *)
(* simulation, with the sessions that its holders came under;              *)
(* README.md beside this file tells how to run it.                         *)
(*                                                                         *)
(* What a command finds and what it leaves is Session's: Matches, After.   *)
(* So are the promises.  What was observed takes the place of choice.      *)
(* Each step has conditions, and Need prints the first that does not hold; *)
(* the history ends there, and is refused.                                 *)
(*                                                                         *)
(* A process of Session is an attempt here, or a session, for a client has *)
(* several under way at a time; both have their numbers from one row.  A   *)
(* write is <<number, place of its command>>, and the place is the beat.   *)
(*                                                                         *)
(* A key that readers or permits share is as many keys of Session as it    *)
(* has holders.  Each of them comes under a session, is renewed, judged,   *)
(* dropped and let go of by itself.  A claim drops some of them, and says  *)
(* nothing of those that stay; an exclusive one stays alone.               *)
(*                                                                         *)
(* It refines Session where that is too coarse for a history: ends by the  *)
(* rules of §4.3, a deposed primary with documents of its own, an election *)
(* that keeps any part of the log, hand-overs, MinHold, clean-up, marks    *)
(* and removals that arrive late.                                          *)
(***************************************************************************)
EXTENDS Session, TLC

CONSTANT Traces  \* the histories

VARIABLES
  trace, at,  \* which history, and which step of it comes next
  tail,       \* what the log had after safe: each command, and the documents after it
  held        \* the attempts whose leases are in hand

traceVars == <<trace, at, tail, held>>

ASSUME TLCSet(1, Traces)        \* so that they are evaluated once
History == TLCGet(1)[trace]
Event   == History.steps[at]

Command(k) ==
  LET t == History.commands[k] IN
  [op |-> t[1], of |-> t[2], client |-> t[3], began |-> t[4], voted |-> t[5], beat |-> t[6], lasts |-> t[7], until |-> t[8], in |-> t[9],
   names |-> t[10], whose |-> t[11], drops |-> IF t[12] = 0 THEN None ELSE <<t[11], t[12]>>, seen |-> t[13],
   shares |-> History.shared /\ t[14], all |-> IF History.shared THEN t[15] ELSE IF t[12] = 0 THEN {} ELSE {<<t[11], t[12]>>}]
TraceSent(w) == Command(w[2])

Need(condition, text) == IF condition THEN TRUE ELSE PrintT(<<"refused", trace, at, text>>) /\ FALSE

\* asked: its claim was sent, or it was begun, and not answered with nothing; won: that was granted; ends: of each write for it that was
\* applied, since when it may be taken for over, and until when it may be trusted; named: a write for this holder alone has named
\* a session, or left one; kept: any has named one; last: the deadline of a session that is over in its process;
\* ended: that process has ended it.
Fresh == [k |-> 0, client |-> -1, asked |-> FALSE, won |-> FALSE, has |-> FALSE, told |-> -1, letGo |-> FALSE, again |-> -1, beat |-> 0,
          shares |-> FALSE, left |-> FALSE, own |-> 0, under |-> 0, alone |-> FALSE, named |-> FALSE, kept |-> FALSE, ends |-> <<>>, claim |-> 0,
          s |-> 0, sOut |-> 0, sTrust |-> 0, last |-> 0, over |-> FALSE, ended |-> FALSE]

\* The key's documents, as Session has them: one, or one for each holder.
Slots      == IF History.shared THEN Procs ELSE {0}
Slot(p)    == IF History.shared THEN p ELSE 0
Nothing    == [key |-> None, under |-> 0, left |-> FALSE]
At(d, i)   == [key |-> d.of[i].key, under |-> d.of[i].under, left |-> d.of[i].left, session |-> d.session]
Held(d)    == {i \in Slots : d.of[i].key # None}
Stands(d, p) == d.of[Slot(p)].key # None /\ d.of[Slot(p)].key[1] = p
Set1(d, i, r) == [d EXCEPT !.of[i] = [key |-> r.key, under |-> r.under, left |-> r.left], !.session = r.session]
Less(d, out)  == [d EXCEPT !.of = [i \in Slots |-> IF i \in out THEN Nothing ELSE d.of[i]]]
Alone(d, w)   == [d EXCEPT !.of = [i \in Slots |-> IF i = Slot(w[1]) THEN [Nothing EXCEPT !.key = w] ELSE Nothing]]

Slack == History.skew + 10
Late  == History.late           \* by how much a timer of a client may be late

TraceInit ==
  /\ trace \in 1..Len(Traces) /\ at = 1
  /\ now = 0 /\ election = 1 /\ sent = <<>> /\ answers = {} /\ dead = {} /\ tail = <<>> /\ held = {}
  /\ doc = [of |-> [i \in Slots |-> Nothing], session |-> [s \in {<<i, i>> : i \in History.sessions} |-> Absent]]
  /\ safe = doc /\ past = doc
  /\ proc = [p \in Procs |-> [Fresh EXCEPT !.k = p, !.s = p]]

Of(p, r)  == proc' = [proc EXCEPT ![p] = r]
Id(s)     == <<s, s>>

\* A session that its process trusts no more.
Gone(a) == [a EXCEPT !.last = Max(@, a.sTrust), !.sTrust = 0, !.over = TRUE]

\* Session's Trust, for a lease.
TraceTrust(p) == Max(proc[p].own, IF proc[p].under # 0 THEN proc[proc[p].under].sTrust ELSE 0)

-----------------------------------------------------------------------------
(* What a client may send. *)

\* The write x of p may be taken for over.
Past(p, x) == x \in DOMAIN proc[p].ends /\ now' >= proc[p].ends[x].over - Slack

\* Session's Over: both ends of the holder. Of one that shares the key the beat tells the session: no other write puts it under one.
Unders(c, x) == IF proc[x[1]].shares THEN proc[x[1]].ends[x[2]].under ELSE {c.seen}
DropsWhatIsOver(c) == \A x \in c.all :
  /\ Need(proc[x[1]].shares \/ c.seen # -1, "it does not say under which session it saw the holder")
  /\ Need(x[2] # -1, "it names no beat that anybody wrote")
  /\ Need(Past(x[1], x[2]), "it drops a holder that is not over")
  /\ Need(\E u \in Unders(c, x) : u # 0 => Id(u) \in dead, "no majority has marked the session of the holder that it drops")

SendClaim(c) ==
  LET a == proc[c.of] IN
  /\ Need(~a.asked, "an id is sent again, and the claim before may have been applied")
  /\ DropsWhatIsOver(c)
  /\ Of(c.of, [a EXCEPT !.asked = TRUE, !.client = c.client, !.shares = c.shares])

\* The lease before is over for its holder, or nobody was given it.
SendHandOver(c) ==
  LET a == proc[c.of] IN
  /\ Need(~a.asked, "an id is sent again, and the claim before may have been applied")
  /\ Need(c.whose # 0, "it takes the place of nobody")
  /\ Need(~proc[c.whose].has, "the lease that it hands over is not over yet")
  /\ Of(c.of, [a EXCEPT !.asked = TRUE, !.client = c.client])

\* Session's InHand, when its client began: the driver may hold it back, and one that left too little is repeated in the same call.
InHandFor(a, c) ==
  \/ a.won /\ a.told < 0 /\ ~a.letGo
  \/ a.told >= c.began
  \/ a.again >= 0 /\ a.told >= a.again

\* Session's Current: the session of this process, which was trusted when its client began.
NamesItsOwn(c) ==
  /\ Need(proc[c.names].client = c.client, "it names a session of another process")
  /\ Need(c.began < Max(proc[c.names].sTrust, proc[c.names].last) + Late, "it names a session that is not in hand")

SendRenew(c) ==
  LET a == proc[c.of] IN
  /\ Need(InHandFor(a, c), "it renews a lease that is not in hand")
  /\ Need(c.beat > a.beat, "its beat is not greater than all before")
  /\ IF c.names = 0 THEN TRUE ELSE NamesItsOwn(c)
  /\ Of(c.of, [a EXCEPT !.beat = c.beat, !.again = -1, !.named = @ \/ c.names # 0, !.kept = @ \/ c.names # 0])

\* From here the lease goes by its own deadline.
SendLeave(c) ==
  LET a == proc[c.of] IN
  /\ Need(InHandFor(a, c), "it renews a lease that is not in hand")
  /\ Need(c.beat > a.beat, "its beat is not greater than all before")
  /\ Of(c.of, [a EXCEPT !.beat = c.beat, !.again = -1, !.named = TRUE, !.alone = TRUE, !.under = 0])

SendEnter(c) ==
  LET a == proc[c.of] IN
  /\ Need(c.of # 0, "it names no revision that a grant wrote")
  /\ Need(InHandFor(a, c), "it puts a lease under a session that is not in hand")
  /\ Need(~a.named, "a renewal for this holder alone may still name another session")
  /\ NamesItsOwn(c)
  /\ Of(c.of, [a EXCEPT !.kept = TRUE])

\* By the user at any time, for that says that the work has stopped; by the engine a margin after it said that the lease is over, or
\* if nobody was given it. What a session may keep comes back for good if its removal is lost.
SendLetGo(c) ==
  LET a == proc[c.of] IN
  /\ Need(c.of # 0, "it names no holder")
  /\ Need(~a.has, "it removes a lease in hand")
  /\ Need(a.client \in {-1, c.client} \/ (c.whose # 0 /\ proc[c.whose].client = c.client), "it removes a holder of another process")
  /\ Need(a.letGo \/ a.told < 0 \/ now' >= a.told + Margin, "the work under it has had no margin to stop")
  /\ Need(a.kept => c.voted, "one node acknowledges the removal of what its session keeps")
  /\ IF a.shares THEN Of(c.of, [a EXCEPT !.left = TRUE]) ELSE UNCHANGED proc

SendSweep(c) ==
  /\ Need(c.of # 0, "it names no holder")
  /\ Need(c.all # {} => \E x \in c.all : x[2] \notin DOMAIN proc[x[1]].ends \/ Unders(c, x) # {0}, "it sweeps what no session left")
  /\ Need(c.all # {}, "it names no beat that anybody wrote")
  /\ DropsWhatIsOver(c)
  /\ UNCHANGED proc

\* Under an id of its own. The session before is over in its process from now on, for good: the answers to its last renewals may have come
\* when nobody waited for them any more.
SendBegin(c) ==
  LET a == proc[c.of] IN
  /\ Need(~a.asked, "the id of a session is used twice")
  /\ proc' = [p \in DOMAIN proc |->
                CASE p = c.of -> [a EXCEPT !.asked = TRUE, !.client = c.client, !.beat = c.beat]
                  [] proc[p].sTrust # 0 /\ proc[p].client = c.client -> Gone(proc[p])
                  [] OTHER -> proc[p]]

SendKeep(c) ==
  LET a == proc[c.of] IN
  /\ Need(a.client = c.client, "it renews the session of another process")
  /\ Need(~a.over /\ (c.began < a.sTrust + Late \/ (a.again >= 0 /\ (a.sTrust = 0 \/ a.again < a.sTrust + Late))), "it renews a session that is not in hand")
  /\ Need(c.beat > a.beat, "its beat is not greater than all before")
  /\ Of(c.of, [a EXCEPT !.beat = c.beat, !.again = -1])

SendMark(c) ==
  /\ Need(c.drops = None \/ Id(c.of) \in dead \/ proc[c.of].ended \/ (c.drops[2] # -1 /\ Past(c.of, c.drops[2])), "it marks a session that is not over")
  /\ UNCHANGED proc

\* By the session's own process: when no lease goes by it any more, or a margin after it was lost.
SendEnd(c) ==
  LET a == proc[c.of] IN
  /\ Need(a.client = c.client, "it ends the session of another process")
  /\ Need(\A p \in held : proc[p].under = c.of => now' >= a.sTrust + Margin \/ now' < proc[p].own + Late, "its process ends a session that keeps a lease")
  /\ proc' = [p \in DOMAIN proc |->
                CASE p = c.of -> [Gone(a) EXCEPT !.ended = TRUE]
                  [] proc[p].under = c.of -> [proc[p] EXCEPT !.under = 0]
                  [] OTHER -> proc[p]]

SendClear(c) ==
  /\ Need(Id(c.of) \in dead, "it removes the document of a session that no majority has marked")
  /\ UNCHANGED proc

Send1(k) ==
  LET c == Command(k) IN
  /\ CASE c.op \in {"claim", "join"} -> SendClaim(c)
       [] c.op = "hand over" -> SendHandOver(c)
       [] c.op = "renew"     -> SendRenew(c)
       [] c.op = "leave"     -> SendLeave(c)
       [] c.op = "enter"     -> SendEnter(c)
       [] c.op \in {"release", "undo", "min-hold"} -> SendLetGo(c)
       [] c.op = "sweep"     -> SendSweep(c)
       [] c.op = "begin"     -> SendBegin(c)
       [] c.op = "keep"      -> SendKeep(c)
       [] c.op = "mark"      -> SendMark(c)
       [] c.op = "end"       -> SendEnd(c)
       [] c.op = "clear"     -> SendClear(c)
       [] c.op = "last"      -> UNCHANGED proc
       [] OTHER -> Need(FALSE, "it is no row of the protocol") /\ UNCHANGED proc
  /\ UNCHANGED <<election, doc, safe, past, dead, tail, held>>

-----------------------------------------------------------------------------
(* What a primary makes of it. *)

\* The holders that a claim names stand as it saw them. Of the others one that shares the key may have left, on a primary that was
\* deposed (§4.2); beside those that stay a joiner comes.
FindsAll(d, c) ==
  /\ \A x \in c.all : d.of[Slot(x[1])].key = x /\ (proc[x[1]].shares \/ d.of[Slot(x[1])].under = c.seen)
  /\ \A i \in Held(d) \ {Slot(x[1]) : x \in c.all} : i # 0 /\ (proc[i].left \/ (c.op = "join" /\ proc[i].shares))

Finds(d, c, w) ==
  CASE c.op \in {"claim", "join"} -> FindsAll(d, c)
    [] c.op = "hand over" -> Stands(d, c.whose)
    [] c.op = "min-hold"  -> Stands(d, c.of)
    [] c.op = "undo" \/ c.op = "release" -> Stands(d, c.of) \/ (c.whose # 0 /\ Stands(d, c.whose)) \/ (c.op = "undo" /\ proc[c.of].shares)
    [] c.op = "last"  -> Held(d) = {}
    [] c.op = "sweep" -> FindsAll(Less(d, Held(d) \ {Slot(c.of)}), c)
    [] c.op = "mark"  -> LET i == d.session[Id(c.of)] IN i = Absent \/ i.marked \/ (c.drops # None /\ i.n = c.drops[2])
    [] c.op = "end"   -> d.session[Id(c.of)] # Absent
    [] c.op = "clear" -> d.session[Id(c.of)].marked
    [] OTHER -> Matches(At(d, Slot(c.of)), w)

\* The clean-up of a join moves the revision, under which it may have found somebody else.
MovesRev(d) == [d EXCEPT !.of = [i \in Slots |-> IF d.of[i].key # None /\ ~proc[i].shares THEN [d.of[i] EXCEPT !.left = TRUE] ELSE d.of[i]]]

Leaves(d, c, w) ==
  CASE c.op = "hand over" -> Alone(Less(d, {Slot(c.whose)}), w)
    [] c.op = "claim"     -> Alone(d, w)
    [] c.op = "join"      -> [Less(d, {Slot(x[1]) : x \in c.all}) EXCEPT !.of[Slot(c.of)] = [Nothing EXCEPT !.key = w]]
    [] c.op = "min-hold"  -> [d EXCEPT !.of[Slot(c.of)] = [key |-> w, under |-> 0, left |-> ~proc[c.of].shares]]
    [] (c.op = "undo" /\ proc[c.of].shares) -> MovesRev(Less(d, {Slot(c.of)}))
    [] c.op \in {"undo", "release", "sweep"} -> Less(d, {Slot(c.of), Slot(c.whose)})
    [] c.op = "last"      -> d
    [] c.op \in {"mark", "end"} -> [d EXCEPT !.session[Id(c.of)].marked = TRUE]
    [] c.op = "clear" -> [d EXCEPT !.session[Id(c.of)] = Absent]
    [] OTHER -> Set1(d, Slot(c.of), After(At(d, Slot(c.of)), w))

\* What was observed of the document: of a key its holders, each with its beat and session, and whether the revision is not that of
\* the exclusive grant any more; of a session <<>>, or its beat and whether it has the mark.
OnSession == {"begin", "keep", "mark", "end", "clear"}
Observed(d, c, o) ==
  IF c.op \in OnSession
  THEN LET i == d.session[Id(c.of)] IN IF o = <<>> THEN i = Absent ELSE i = [n |-> o[1], marked |-> o[2]]
  ELSE o = {<<d.of[i].key[1], d.of[i].key[2], d.of[i].under, d.of[i].left>> : i \in Held(d)}

\* Since when a write may be taken for over: a TTL after it was sent, and no earlier than its date says, if that is of the clock of the
\* primary that applied it. A renewal leaves no earlier date than there was. And until when it may be trusted.
Least(a, b)   == IF a < b THEN a ELSE b
Drifted(long) == long - (long \div 1000)
EndOf(c, term, clock, before) ==
  LET end == IF c.in \in {0, term} THEN Least(c.began + Drifted(c.lasts), now' + Drifted(c.until - clock)) ELSE c.began + Drifted(c.lasts)
  IN [under |-> {}, over |-> Max(end, before), bound |-> Least(c.began + c.lasts, now' + (c.until - clock))]
Twice(a, k, e) == IF k \notin DOMAIN a.ends THEN e ELSE [under |-> e.under \cup a.ends[k].under, over |-> Least(e.over, a.ends[k].over), bound |-> Max(e.bound, a.ends[k].bound)]

Run(k, term, clock, o) ==
  LET c == Command(k)
      w == <<c.of, k>>
      d == IF term = election THEN doc ELSE past
      after == Leaves(d, c, w)
      a == proc[c.of]
      earlier == CASE c.op \in {"renew", "leave"} -> d.of[Slot(c.of)].key[2]
                   [] c.op = "keep" -> d.session[Id(c.of)].n
                   [] OTHER -> 0
      before == IF earlier \in DOMAIN a.ends THEN a.ends[earlier].over ELSE 0
      end == [EndOf(c, term, clock, before) EXCEPT !.under = IF c.op \in OnSession THEN {} ELSE {after.of[Slot(c.of)].under}]
  IN
  /\ Need(term >= election - 1, "a primary that was deposed long ago executes it")
  /\ Need(Finds(d, c, w), "the server has executed what does not match")
  /\ Need(Observed(after, c, o), "it leaves another document than the specification says")
  /\ IF term = election
     THEN doc' = after /\ tail' = Append(tail, [k |-> k, d |-> after]) /\ UNCHANGED past
     ELSE past' = after /\ UNCHANGED <<doc, tail>>
  /\ IF c.op \in {"claim", "join", "hand over", "renew", "leave", "min-hold", "begin", "keep"}
     THEN Of(c.of, [a EXCEPT !.ends = (k :> Twice(a, k, end)) @@ @, !.claim = IF c.op \in {"claim", "join", "hand over"} THEN k ELSE @,
                             !.beat = Max(@, c.beat)])
     ELSE UNCHANGED proc
  /\ UNCHANGED <<election, safe, dead, held>>

\* A holder that a majority has: its renewal counts from now on, and so does the session that it names, if either is trusted at this moment.
Renewed1(p, d) ==
  LET a == proc[p] IN
  IF d.key[2] \notin DOMAIN a.ends \/ (a.has /\ now' >= TraceTrust(p) + Late) THEN a
  ELSE [a EXCEPT !.own = Max(@, a.ends[d.key[2]].bound - Margin),
                 !.under = IF d.under # 0 /\ ~a.alone /\ now' < proc[d.under].sTrust + Late THEN d.under ELSE @]

CommitAll(left) ==
  /\ Need(left <= Len(tail), "a majority has lost what it had")
  /\ safe' = IF left < Len(tail) THEN tail[Len(tail) - left].d ELSE safe
  /\ tail' = SubSeq(tail, Len(tail) - left + 1, Len(tail))
  /\ dead' = dead \cup {s \in DOMAIN safe'.session : safe'.session[s].marked}
  /\ proc' = [p \in DOMAIN proc |-> IF Stands(safe', p) THEN Renewed1(p, safe'.of[Slot(p)]) ELSE proc[p]]
  /\ UNCHANGED <<election, doc, past, held>>

ElectOne(term, lost) ==
  /\ Need(lost <= Len(tail), "an election has lost what a majority had")
  /\ election' = term /\ past' = doc
  /\ doc' = IF lost = 0 THEN doc ELSE IF lost < Len(tail) THEN tail[Len(tail) - lost].d ELSE safe
  /\ tail' = SubSeq(tail, 1, Len(tail) - lost)
  /\ UNCHANGED <<safe, dead, proc, held>>

-----------------------------------------------------------------------------
(* What comes back. *)

Answer(k, hit) ==
  LET c == Command(k)
      a == proc[c.of]
      until == IF k \in DOMAIN a.ends THEN a.ends[k].bound - Margin ELSE 0
  IN
  /\ Need((hit /\ c.voted) => \A i \in 1..Len(tail) : tail[i].k # k, "it is answered before a majority has it")
  /\ CASE c.op \in {"claim", "join", "hand over"} -> Of(c.of, [a EXCEPT !.asked = hit, !.won = @ \/ hit])
       [] (c.op = "begin" /\ hit) -> Of(c.of, [a EXCEPT !.sTrust = IF now' < until /\ ~a.over THEN until ELSE 0, !.again = c.began])
       [] (c.op = "keep" /\ hit)  -> Of(c.of, [a EXCEPT !.sTrust = IF now' < @ + Late \/ (@ = 0 /\ ~a.over) THEN Max(@, until) ELSE @, !.again = c.began])
       [] (c.op = "renew" /\ hit) -> Of(c.of, [a EXCEPT !.again = c.began])
       [] OTHER -> UNCHANGED proc
  /\ UNCHANGED <<election, doc, safe, past, dead, tail, held>>

Has(p) ==
  LET a == proc[p]
      until == IF a.claim = 0 THEN 0 ELSE a.ends[a.claim].bound - Margin
  IN
  /\ Need(a.won, "no answer has granted it")
  /\ Need(now' < Max(until, TraceTrust(p)), "the answer came too late to be a grant")
  /\ Of(p, [a EXCEPT !.has = TRUE, !.own = Max(@, until)])
  /\ held' = held \cup {p}
  /\ UNCHANGED <<election, doc, safe, past, dead, tail>>

Told(p) ==
  LET a == proc[p] IN
  /\ Need(a.has => now' <= TraceTrust(p) + Margin, "its holder is told when others may have the key already")
  /\ Of(p, [a EXCEPT !.has = FALSE, !.told = now'])
  /\ held' = held \ {p}
  /\ UNCHANGED <<election, doc, safe, past, dead, tail>>

UserLetsGo(p) ==
  /\ Need(proc[p].has => now' <= TraceTrust(p) + Margin, "its holder was not told, and others may have the key already")
  /\ Of(p, [proc[p] EXCEPT !.has = FALSE, !.letGo = TRUE])
  /\ held' = held \ {p}
  /\ UNCHANGED <<election, doc, safe, past, dead, tail>>

TheEnd ==
  /\ PrintT(<<"allowed", trace, at>>)
  /\ UNCHANGED <<election, doc, safe, past, dead, tail, proc, held>>

-----------------------------------------------------------------------------
Do(e) ==
  CASE e[2] = "send"    -> Send1(e[3])
    [] e[2] = "run"     -> Run(e[3], e[4], e[5], e[6])
    [] e[2] = "answer"  -> Answer(e[3], e[4])
    [] e[2] = "commit"  -> CommitAll(e[3])
    [] e[2] = "elect"   -> ElectOne(e[3], e[4])
    [] e[2] = "has"     -> Has(e[3])
    [] e[2] = "told"    -> Told(e[3])
    [] e[2] = "lets go" -> UserLetsGo(e[3])
    [] e[2] = "over"    -> TheEnd

\* Session's promises, asked of the leases in hand alone.
OneLives    == \A p, q \in held : Live(p) /\ Live(q) => p = q \/ (proc[p].shares /\ proc[q].shares)
NobodyElses == \A p \in held : Live(p) => Stands(safe, p)

Promised ==
  /\ Need(OneLives', "Exclusion")
  /\ Need(NobodyElses', "NoCollateral")
  /\ Need(Final', "Final")

\* now' is the time of the step: its conditions ask for that, and so do the promises, which speak of the state after it.
TraceNext ==
  /\ at <= Len(History.steps)
  /\ now' = Event[1]
  /\ Do(Event)
  /\ at' = at + 1
  /\ UNCHANGED <<trace, sent, answers>>
  /\ Promised

\* All that there is of a history at a step follows from the steps before.
Where == <<trace, at>>

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, traceVars>>
=============================================================================
