------------------------------ MODULE Session ------------------------------
(***************************************************************************)
(* One session for many leases (design.md §4.11): one key; processes, each *)
(* with leases of the key, one after the other, and with sessions, one     *)
(* after the other.  README.md beside this file tells how to run it.       *)
(*                                                                         *)
(* A holder of the key has two ends: its own, which every write for it     *)
(* alone moves, and that of the session which a renewal put it under, or   *)
(* an update of many holders, which leaves its beat and its own end as     *)
(* they are.  A rival that finds both past marks the session as dead,      *)
(* waits until a majority has the mark, and only then takes the key, by    *)
(* the beat and the session that it saw.  TLC shows within bounds          *)
(* that this is enough: no two processes trust a lease of the key at once, *)
(* nobody trusts a session again that is dead, no sweep removes a live     *)
(* holder.                                                                 *)
(*                                                                         *)
(* What is sent.  A process's writes stay in `sent` for ever.  Each may be *)
(* applied at any later time, again whenever its filter matches, or never: *)
(* late, lost and doubled commands, pauses, and kills (a process that      *)
(* takes no more steps).  The place of a write in `sent` is its beat.      *)
(*                                                                         *)
(* What a rival sees.  Its look may be as old as it likes, and answered by *)
(* any primary, a deposed one too: so it may judge by any write that was   *)
(* ever sent.  All that it acts on stays true (an end is past, a session   *)
(* is dead, a lease was let go), so a command of its that comes late is    *)
(* one that is sent later, and is not kept in `sent`.  A rival that dies   *)
(* between its mark and its swap takes no further step; the next one finds *)
(* the session dead, or marks it once more, which changes nothing.         *)
(*                                                                         *)
(* Time.  An end is past once real time has reached it: that is what the   *)
(* rules of §4.3 promise, which Takeover.tla has, with clocks that differ. *)
(*                                                                         *)
(* There is one primary, its documents `doc`, and `safe`, those that a     *)
(* majority has.  An election keeps either, and leaves behind a primary    *)
(* that does not know it.  Tokens, modes, clean-up, the line are the same  *)
(* with sessions as without: Lock.tla, Store.tla.                          *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Procs, Busy,           \* who, and those of them that send up to MostWrites; the others, FewWrites
          MostWrites, FewWrites,
          Attempts, Sessions,    \* how many leases, and how many sessions, each may have
          Rows,                  \* the rows of §4.11 beyond these: begin, come under alone, renew, mark, take over
          TTL, Margin,
          Hour,                  \* the grace of the TTL index
          MaxNow, MaxElections

VARIABLES
  now, election,  \* real time; the election going on
  sent,           \* sent[p]: the writes of p, in order; <<p, n>> names the nth
  doc, safe,      \* the documents as the primary has them, and as a majority has them
  past,           \* the sessions as a primary has them that was deposed and does not know it
  dead,           \* the sessions whose mark a majority has had
  answers,        \* of the writes that their processes wait for, those that a majority has had applied
  proc            \* what each process believes

vars == <<now, election, sent, doc, safe, past, dead, answers, proc>>

Max(a, b) == IF a > b THEN a ELSE b

\* <<p, i>> is the ith session of p.
Ids == Procs \X (1..Sessions)

\* The key's document shows the last write for its holder alone; None: there is none. It shows the number of the session that
\* the holder is under; 0: none. left: its revision is not the grant's any more, as the holder has left a session. A session's
\* shows the last write for it, n, and whether it has the mark. With n = 0 and the mark it was absent when it was marked.
None   == <<>>
Absent == [n |-> 0, marked |-> FALSE]
NoDoc  == [key |-> None, under |-> 0, left |-> FALSE, session |-> [s \in Ids |-> Absent]]
Freed(d) == [d EXCEPT !.key = None, !.under = 0, !.left = FALSE]

\* k: the attempt; out, sOut: the write for it, and for the session, whose answer is awaited; has: it was granted; own: the
\* deadline of the lease; s: the session, and sTrust: its deadline; under: the session if the lease is under it. 0: none.
Nobody == [k |-> 0, out |-> 0, has |-> FALSE, own |-> 0, under |-> 0, s |-> 0, sOut |-> 0, sTrust |-> 0]

Init ==
  /\ now = 0 /\ election = 1
  /\ sent = [p \in Procs |-> <<>>]
  /\ doc = NoDoc /\ safe = NoDoc /\ past = NoDoc.session
  /\ dead = {} /\ answers = {}
  /\ proc = [p \in Procs |-> Nobody]

-----------------------------------------------------------------------------
(* Writes, and what a server makes of them. *)

\* op: what it is; of: the number of its attempt, or of its session; at: when it was sent; names: the session that a renewal
\* names, or 0; drops: of a claim, the write in the image of the holder whose place it takes, or None; seen: its session there.
Sent(w)     == sent[w[1]][w[2]]
End(w)      == Sent(w).at + TTL
ForHolders  == {"claim", "renew", "leave"}
Entrances   == {"enter"}               \* an update of many holders
ForSessions == {"begin", "keep"}
Writes(ops) == {w \in UNION {{p} \X (1..Len(sent[p])) : p \in Procs} : Sent(w).op \in ops}

Same(v, w) == v[1] = w[1] /\ Sent(v).of = Sent(w).of     \* both are of one attempt
Session(w) == <<w[1], Sent(w).of>>                       \* of a write for a session

Matches(d, w) ==
  LET c == Sent(w) IN
  CASE c.op = "claim" -> d.key = c.drops /\ d.under = c.seen   \* the holder, the beat and the session that the image showed
    [] c.op \in {"renew", "leave"} -> d.key # None /\ Same(d.key, w) /\ d.key[2] < w[2]
    [] c.op = "enter" -> d.key # None /\ Same(d.key, w) /\ ~d.left /\ d.under \in {0, c.names}   \* by its revision
    [] c.op = "begin" -> d.session[Session(w)] = Absent
    [] c.op = "keep"  -> /\ d.session[Session(w)].n \in 1..(w[2] - 1)
                         /\ ~d.session[Session(w)].marked

After(d, w) ==
  CASE Sent(w).op = "claim"      -> [d EXCEPT !.key = w, !.under = 0, !.left = FALSE]
    [] Sent(w).op = "renew"      -> [d EXCEPT !.key = w, !.under = IF Sent(w).names # 0 THEN Sent(w).names ELSE @]
    [] Sent(w).op = "leave"      -> [d EXCEPT !.key = w, !.under = 0, !.left = TRUE]
    [] Sent(w).op = "enter"      -> [d EXCEPT !.under = Sent(w).names]
    [] Sent(w).op = "begin"      -> [d EXCEPT !.session[Session(w)] = [n |-> w[2], marked |-> FALSE]]
    [] Sent(w).op = "keep"       -> [d EXCEPT !.session[Session(w)].n = w[2]]

\* The writes that documents show, and those whose answers are awaited. A holder that is under the session which an
\* entrance names is one that this entrance put there, as far as its process is concerned.
Shown(d) == ({d.key} \ {None}) \cup {<<s[1], d.session[s].n>> : s \in Ids}
            \cup {w \in Writes(Entrances) : d.key # None /\ Same(d.key, w) /\ d.under = Sent(w).names}
Awaited  == {w \in Writes(ForHolders \cup Entrances \cup ForSessions) : w[2] \in {proc[w[1]].out, proc[w[1]].sOut}}

\* A majority has d. What it has had once stays so, whatever becomes of the documents.
Secure(d) ==
  /\ safe' = d
  /\ dead' = dead \cup {s \in Ids : d.session[s].marked}
  /\ answers' = answers \cup (Awaited \cap Shown(d))

\* The primary's documents become d. (Where no election can follow, a majority has that at once.)
Becomes(d) ==
  /\ doc' = d
  /\ IF election = MaxElections THEN Secure(d) ELSE UNCHANGED <<safe, dead, answers>>
  /\ UNCHANGED <<now, election, sent, past, proc>>

Apply(w) == Matches(doc, w) /\ Becomes(After(doc, w))

Commit ==
  /\ safe # doc /\ Secure(doc)
  /\ UNCHANGED <<now, election, sent, doc, past, proc>>

\* An election: what no majority had is kept or lost (§4.2), a mark too.
Elect ==
  /\ election < MaxElections /\ election' = election + 1
  /\ doc' \in {doc, safe} /\ past' = doc.session
  /\ IF election' = MaxElections THEN Secure(doc') ELSE UNCHANGED <<safe, dead, answers>>
  /\ UNCHANGED <<now, sent, proc>>

Tick ==
  /\ now < MaxNow /\ now' = now + 1
  /\ UNCHANGED <<election, sent, doc, safe, past, dead, answers, proc>>

-----------------------------------------------------------------------------
(* A rival, and whoever sweeps. *)

\* A session that its own process has ended: see EndSession.
Ended(s) == LET r == proc[s[1]] IN r.s > s[2] \/ (r.s = s[2] /\ r.sTrust = 0 /\ r.sOut = 0)

\* §4.11, mark: it asks for the beat in the image, whose end is past. §4.11, end: by the session's own process, by the id alone.
Mark(s) ==
  LET i == doc.session[s] IN
  /\ i.n > 0 /\ ~i.marked
  /\ now >= End(<<s[1], i.n>>) \/ ("end" \in Rows /\ Ended(s))
  /\ Becomes([doc EXCEPT !.session[s].marked = TRUE])

\* The same of a session that is not there, and that a holder names.
MarkAbsent(s) ==
  /\ \E w \in Writes({"renew"} \cup Entrances) : <<w[1], Sent(w).names>> = s
  /\ doc.session[s] = Absent
  /\ Becomes([doc EXCEPT !.session[s].marked = TRUE])

\* A deposed primary executes the mark as well. No majority has it there, so nobody is told that it is done.
MarkInVain(s) ==
  /\ election > 1
  /\ past[s].n > 0 /\ now >= End(<<s[1], past[s].n>>)
  /\ dead' = dead
  /\ UNCHANGED <<now, election, sent, doc, safe, past, answers, proc>>

\* The sessions, by their numbers, of which an image that shows w may show one. After a write that named none it may be any
\* that another one named, or none: the image may be of a primary that has this write and not that.
Shows(w) ==
  CASE Sent(w).op = "leave" -> {0}
    [] Sent(w).names # 0    -> {Sent(w).names}
    [] OTHER                -> {0} \cup {Sent(v).names : v \in {x \in Writes({"renew"} \cup Entrances) : Same(x, w)}}

\* §4.11, takeover: both ends are over of the holder in an image that shows w and the session u.
Named(w, u) == IF u = 0 THEN {} ELSE {<<w[1], u>>}
Over(w, u)  == now >= End(w) /\ Named(w, u) \subseteq dead

\* §4.11, sweep: what a dead session left, by the holder, the beat and the session that were judged.
Sweep(w, u) ==
  /\ "sweep" \in Rows /\ Named(w, u) # {} /\ Over(w, u)
  /\ doc.key = w /\ doc.under = u
  /\ Becomes(Freed(doc))

\* The session's document goes: at the end of a sweep, or an hour after its end, by the TTL index.
Clear(s) ==
  /\ doc.session[s] # Absent
  /\ \/ "sweep" \in Rows /\ s \in dead /\ doc.session[s].marked
     \/ "index" \in Rows /\ doc.session[s].n > 0 /\ now >= End(<<s[1], doc.session[s].n>>) + Hour
  /\ Becomes([doc EXCEPT !.session[s] = Absent])

\* release, by the id of an attempt that nobody has in hand any more (§4.4), or waits for (§4.6)
Release ==
  /\ "release" \in Rows /\ doc.key # None
  /\ LET r == proc[doc.key[1]]  k == Sent(doc.key).of IN r.k > k \/ (r.k = k /\ ~r.has /\ r.out = 0)
  /\ Becomes(Freed(doc))

-----------------------------------------------------------------------------
(* A process. *)

\* §4.11, what a process trusts: the later of the lease's own deadline and the session's.
Trust(p)  == Max(proc[p].own, IF proc[p].under # 0 THEN proc[p].sTrust ELSE 0)
InHand(p) == proc[p].has /\ now < Trust(p)

\* The session that leases come under now; 0: none.
Current(p) == IF now < proc[p].sTrust THEN proc[p].s ELSE 0

Beat(p) == Len(sent[p]) + 1
SendSeeing(p, op, of, names, drops, seen) ==
  /\ Len(sent[p]) < IF p \in Busy THEN MostWrites ELSE FewWrites
  /\ sent' = [sent EXCEPT ![p] = Append(@, [op |-> op, of |-> of, at |-> now, names |-> names, drops |-> drops, seen |-> seen])]
Send(p, op, of, names, drops) == SendSeeing(p, op, of, names, drops, 0)

\* An answer that nobody waits for any more is forgotten.
Become(p, r) ==
  /\ proc' = [proc EXCEPT ![p] = r]
  /\ answers' = {w \in answers : w[1] # p \/ w[2] \in {r.out, r.sOut}}
  /\ UNCHANGED <<now, election, doc, safe, past, dead>>

\* acquire, takeover (§4.4): where nobody is, or in the place of a holder whose ends are both over
Claim(p) ==
  /\ ~proc[p].has /\ proc[p].out = 0 /\ proc[p].k < Attempts
  /\ \/ Send(p, "claim", proc[p].k + 1, 0, None)
     \/ \E w \in Writes(ForHolders) : \E u \in Shows(w) : Over(w, u) /\ SendSeeing(p, "claim", proc[p].k + 1, 0, w, u)
  /\ Become(p, [proc[p] EXCEPT !.k = @ + 1, !.out = Beat(p)])

\* The answer to it. Trust counts from before it was sent (§4.3).
Granted(p) ==
  LET w == <<p, proc[p].out>> IN
  /\ ~proc[p].has /\ w \in answers /\ now < End(w) - Margin
  /\ Become(p, [proc[p] EXCEPT !.has = TRUE, !.out = 0, !.own = End(w) - Margin])
  /\ UNCHANGED sent

\* renew (§4.4), and §4.11, come under: it names the session that there is. One before it that is not answered is given up.
Renew(p) ==
  /\ InHand(p)
  /\ Send(p, "renew", proc[p].k, Current(p), None)
  /\ Become(p, [proc[p] EXCEPT !.out = Beat(p)])

\* §4.11, come under together: if no write for this holder alone has named a session, or left one.
Enter(p) ==
  /\ "together" \in Rows /\ InHand(p) /\ Current(p) # 0
  /\ \A i \in 1..Len(sent[p]) : sent[p][i].op \in {"renew", "leave"} /\ sent[p][i].of = proc[p].k => sent[p][i].op = "renew" /\ sent[p][i].names = 0
  /\ Send(p, "enter", proc[p].k, Current(p), None)
  /\ Become(p, [proc[p] EXCEPT !.out = Beat(p)])

\* The answer to either. The session counts for the lease from now on, if it is trusted at this moment.
Renewed(p) ==
  LET w == <<p, proc[p].out>> IN
  /\ InHand(p) /\ w \in answers
  /\ Become(p, [proc[p] EXCEPT !.out = 0, !.own = IF Sent(w).op = "enter" THEN @ ELSE Max(@, End(w) - Margin),
                               !.under = IF Sent(w).names # 0 /\ Sent(w).names = Current(p) THEN Sent(w).names ELSE @])
  /\ UNCHANGED sent

\* §4.11, leave: from here the lease goes by its own deadline, and the renewal takes its holder out of the session.
Leave(p) ==
  /\ "leave" \in Rows /\ InHand(p) /\ proc[p].under # 0 /\ now < proc[p].own
  /\ Send(p, "leave", proc[p].k, 0, None)
  /\ Become(p, [proc[p] EXCEPT !.under = 0, !.out = Beat(p)])

\* Its user lets go of it at any time, the engine a margin after the deadline (§4.5); or nobody waits for a claim any more.
LetGo(p) ==
  /\ "release" \in Rows
  /\ IF proc[p].has THEN InHand(p) \/ now >= Trust(p) + Margin ELSE proc[p].out # 0
  /\ Become(p, [proc[p] EXCEPT !.has = FALSE, !.out = 0, !.own = 0, !.under = 0])
  /\ UNCHANGED sent

\* §4.11, begin: for a lease in hand, once the session before is over in its process for good. The next one has another id.
Begin(p) ==
  /\ InHand(p) /\ now >= proc[p].sTrust
  /\ proc[p].s < Sessions
  /\ Send(p, "begin", proc[p].s + 1, 0, None)
  /\ Become(p, [proc[p] EXCEPT !.s = @ + 1, !.under = 0, !.sOut = Beat(p), !.sTrust = 0])

Begun(p) ==
  LET w == <<p, proc[p].sOut>> IN
  /\ proc[p].sTrust = 0 /\ w \in answers /\ now < End(w) - Margin
  /\ Become(p, [proc[p] EXCEPT !.sOut = 0, !.sTrust = End(w) - Margin])
  /\ UNCHANGED sent

\* §4.11, renew: of the session
Keep(p) ==
  /\ Current(p) # 0
  /\ Send(p, "keep", proc[p].s, 0, None)
  /\ Become(p, [proc[p] EXCEPT !.sOut = Beat(p)])

\* The answer to it. After the deadline it moves nothing: the session is over, for good.
Kept(p) ==
  LET w == <<p, proc[p].sOut>> IN
  /\ w \in answers
  /\ Current(p) # 0
  /\ Become(p, [proc[p] EXCEPT !.sOut = 0, !.sTrust = Max(@, End(w) - Margin)])
  /\ UNCHANGED sent

\* §4.11, end: when nothing is under it, or a margin after it was lost. Mark sends it.
EndSession(p) ==
  /\ "end" \in Rows /\ proc[p].sTrust # 0
  /\ proc[p].under = 0 \/ now >= proc[p].sTrust + Margin
  /\ Become(p, [proc[p] EXCEPT !.sOut = 0, !.sTrust = 0, !.under = 0])
  /\ UNCHANGED sent

-----------------------------------------------------------------------------
Next ==
  \/ Tick \/ Commit \/ Elect \/ Release
  \/ \E w \in Writes(ForHolders \cup Entrances \cup ForSessions) : Apply(w)
  \/ \E w \in Writes(ForHolders) : \E u \in Shows(w) : Sweep(w, u)
  \/ \E s \in Ids : Mark(s) \/ MarkInVain(s) \/ MarkAbsent(s) \/ Clear(s)
  \/ \E p \in Procs :
       \/ Claim(p) \/ Granted(p) \/ Renew(p) \/ Enter(p) \/ Renewed(p) \/ Leave(p) \/ LetGo(p)
       \/ Begin(p) \/ Begun(p) \/ Keep(p) \/ Kept(p) \/ EndSession(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. *)

\* The work under its lease may go on: until a margin after the deadline, unless it was let go of.
Live(p) == proc[p].has /\ now < Trust(p) + Margin

\* No two processes trust a lease of the key at once, nor within a margin of each other (§1).
Exclusion == \A p, q \in Procs : Live(p) /\ Live(q) => p = q

\* The mark is for good: no renewal, however late, brings back the trust in a session that has it.
Final == \A s \in dead : proc[s[1]].s = s[2] => now >= proc[s[1]].sTrust + Margin

\* A live lease's holder is where a majority has it: no takeover removes it, no sweep and no release of another (§1).
NoCollateral == \A p \in Procs : Live(p) => safe.key # None /\ safe.key[1] = p /\ Sent(safe.key).of = proc[p].k
=============================================================================
