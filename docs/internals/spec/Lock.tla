-------------------------------- MODULE Lock --------------------------------
(***************************************************************************)
(* The protocol of mongolock for one key: design.md §4.4, a row an action, *)
(* with §4.1 (sessions and twins), §4.2 (write concerns), §4.6 (clean-up)  *)
(* and §4.7 (the token).  README.md beside this file tells how to read and *)
(* run it.                                                                 *)
(*                                                                         *)
(* A process makes attempts, one after the other; an attempt is named by   *)
(* its id.  It claims the key, may be granted it, renews, and lets go.     *)
(* Whenever an answer is outstanding it may give up instead, and clean up. *)
(*                                                                         *)
(* A command that was sent stays in `net` for ever: it may be applied at   *)
(* any later time, or never, and again whenever the server does not        *)
(* remember it.  That covers lost, late and doubled commands, the driver's *)
(* retries, pauses and kills (a process that takes no more steps).         *)
(*                                                                         *)
(* There is one primary, its document `doc`, and the state `safe` that a   *)
(* majority has.  An election keeps either.  Reads of a primary deposed    *)
(* unnoticed, and logs that come back, are in Takeover.tla; here a look is *)
(* of the primary's document.                                              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Procs, Attempts,            \* who, and how many attempts each has
          Modes,                      \* a subset of {"exclusive", "shared"}
          Rows,                       \* the rows of §4.4 beyond claiming, looking, swapping, releasing and cleaning up
          TTL, Margin, Hour,          \* Hour: the grace of the TTL index
          Skews,                      \* how far a primary's clock may be from real time
          MaxNow, MaxElections, MaxBeats

Ids      == Procs \X (1..Attempts)
NoOne    == [mode |-> "none"]
NoRev    == <<>>
Fell     == <<"a smaller token after a greater">>
Max(a,b) == IF a > b THEN a ELSE b

VARIABLES
  now, election, skew,  \* real time; the election going on; skew[e]: the clock of e's primary shows now + skew[e]
  doc, safe,            \* the document as the primary has it, and as a majority has it
  refuses,              \* refuses[id]: what the primary refuses though it changed nothing: its memory alone
  net,                  \* every command that was sent
  proc,                 \* what each process does and believes
  seen,                 \* seen[p]: the beats that p has seen, and since when
  settled,              \* the ids that were let go or cleaned up, acknowledged, with no election since
  drawn,                \* the tokens: the ids in the order in which the log took their claims, from the last exclusive grant on
  last                  \* whose exclusive grant was the last

vars == <<now, election, skew, doc, safe, refuses, net, proc, seen, settled, drawn, last>>

Clock == now + skew[election]

\* What an empty key looks like. txn[id] is the highest transaction number of id's session; has, the commands that ran
\* in sessions of their own: both are replicated, and rolled back, with the document.
NoDoc == [exists |-> FALSE, rev |-> NoRev, holders |-> [i \in Ids |-> NoOne],
          txn |-> [i \in Ids |-> 0], has |-> {}]

Holds(d, i) == d.holders[i] # NoOne
Holders(d)  == {i \in Ids : Holds(d, i)}
Deleted(d)  == [d EXCEPT !.exists = FALSE, !.rev = NoRev, !.holders = [i \in Ids |-> NoOne]]

Idle == [phase |-> "idle", k |-> 0, n |-> 0, mode |-> "none", sent |-> 0, trust |-> 0, rev |-> NoRev, old |-> NoRev, sample |-> 1]

Init ==
  /\ now = 0 /\ election = 1
  /\ \E s \in Skews : skew = [e \in 1..MaxElections |-> IF e = 1 THEN s ELSE 0]
  /\ doc = NoDoc /\ safe = NoDoc /\ refuses = [i \in Ids |-> 0]
  /\ net = {} /\ proc = [p \in Procs |-> Idle]
  /\ seen = [p \in Procs |-> {}]
  /\ settled = {} /\ drawn = <<>> /\ last = NoRev

-----------------------------------------------------------------------------
(* Commands, and what a server makes of them.  n is the command's number in its attempt; a rev is <<id, n>> of the command that wrote it. *)

Rev(c)   == <<c.id, c.n>>
Holder(c) == [mode |-> c.mode, beat |-> c.beat, epoch |-> c.epoch, end |-> c.end, barred |-> FALSE]
Only(c)  == [i \in Ids |-> IF i = c.id THEN Holder(c) ELSE NoOne]

\* §4.1: these run in the attempt's own session. The others have a session each.
InSession == {"insert", "swap", "join", "transfer", "undo", "undo-join"}

Known(d, c) == IF c.op \in InSession THEN c.n <= Max(d.txn[c.id], refuses[c.id]) ELSE Rev(c) \in d.has

Matches(d, c) ==
  CASE c.op = "insert"    -> ~d.exists
    [] c.op = "swap"      -> /\ d.exists /\ d.rev = c.rev
                             /\ \A x \in c.drop : Holds(d, x.id) /\ d.holders[x.id].beat = x.beat
    [] c.op = "join"      -> /\ d.exists /\ d.rev = c.rev
                             /\ \A x \in c.drop : Holds(d, x.id) /\ d.holders[x.id].beat = x.beat
    [] c.op = "renew"     -> /\ Holds(d, c.id) /\ ~d.holders[c.id].barred
                             /\ d.holders[c.id].beat < c.beat
    [] c.op = "release"   -> Holds(d, c.id)
    [] c.op = "leave"     -> Holds(d, c.id)
    [] c.op = "delete"    -> d.exists /\ d.rev = c.rev     \* whoever stood there under this rev has let go (§4.2)
    [] c.op = "min-hold"  -> Holds(d, c.id)
    [] c.op = "break"     -> Holds(d, c.id)
    [] c.op = "transfer"  -> d.exists /\ d.rev = c.rev /\ Holds(d, c.old)
    [] c.op = "undo"      -> Holds(d, c.id) \/ (c.old \in Ids /\ Holds(d, c.old))
    [] c.op = "undo-join" -> d.exists /\ (Holds(d, c.id) \/ d.rev = c.rev)

After(d, c) ==
  CASE c.op \in {"insert", "swap", "transfer"} -> [d EXCEPT !.exists = TRUE, !.rev = Rev(c), !.holders = Only(c)]
    [] c.op = "join"      -> [d EXCEPT !.rev = Rev(c),
                                       !.holders = [i \in Ids |-> IF i = c.id THEN Holder(c)
                                                                  ELSE IF \E x \in c.drop : x.id = i THEN NoOne ELSE d.holders[i]]]
    [] c.op = "renew"     -> [d EXCEPT !.holders[c.id] = [@ EXCEPT !.beat = c.beat, !.epoch = c.epoch, !.end = Max(@, c.end)]]
    [] c.op \in {"release", "delete", "undo"} -> Deleted(d)
    [] c.op = "leave"     -> [d EXCEPT !.holders[c.id] = NoOne]
    [] c.op = "min-hold"  -> [d EXCEPT !.rev = Rev(c), !.holders[c.id] = [@ EXCEPT !.beat = c.beat, !.epoch = c.epoch, !.end = c.end, !.barred = TRUE]]
    [] c.op = "break"     -> [d EXCEPT !.rev = Rev(c), !.holders[c.id].barred = TRUE]
    [] c.op = "undo-join" -> [d EXCEPT !.rev = Rev(c), !.holders[c.id] = NoOne]

Remember(d, c) == IF c.op \in InSession THEN [d EXCEPT !.txn[c.id] = c.n] ELSE [d EXCEPT !.has = @ \cup {Rev(c)}]

\* A majority has d. What it knows is never applied again; that need not be kept in net.
Secure(d) ==
  /\ safe' = d
  /\ net' = {c \in net : IF c.op \in InSession THEN c.n > d.txn[c.id] ELSE Rev(c) \notin d.has}

\* A command reaches the primary and is applied there. (Where no election can follow, a majority has it at once: that
\* it might have it later shows in nothing but later answers.)
Apply(c) ==
  /\ ~Known(doc, c) /\ Matches(doc, c)
  /\ doc' = Remember(After(doc, c), c)
  /\ IF election = MaxElections THEN Secure(doc') ELSE UNCHANGED <<safe, net>>
  /\ drawn' = IF c.op \in {"insert", "swap", "join", "transfer"} THEN Append(SelectSeq(drawn, LAMBDA i : i # c.id), c.id) ELSE drawn
  /\ UNCHANGED <<now, election, skew, refuses, proc, seen, settled, last>>

\* A clean-up that matches nothing bars the attempt's earlier commands all the same, as long as this primary lives.
ApplyNothing(c) ==
  /\ c.op \in {"undo", "undo-join"}
  /\ ~Known(doc, c) /\ ~Matches(doc, c)
  /\ refuses' = [refuses EXCEPT ![c.id] = c.n]
  /\ UNCHANGED <<now, election, skew, doc, safe, net, proc, seen, settled, drawn, last>>

Commit ==
  /\ safe # doc /\ Secure(doc)
  /\ UNCHANGED <<now, election, skew, doc, refuses, proc, seen, settled, drawn, last>>

\* An election: the writes that no majority had are kept or lost. Memory and clock are the new primary's.
Elect ==
  /\ election < MaxElections /\ election' = election + 1
  /\ \E s \in Skews : skew' = [skew EXCEPT ![election + 1] = s]
  /\ doc' \in {doc, safe}
  /\ IF election' = MaxElections THEN Secure(doc') ELSE UNCHANGED <<safe, net>>
  /\ refuses' = [i \in Ids |-> 0]
  /\ settled' = {}
  /\ UNCHANGED <<now, proc, seen, drawn, last>>

\* The TTL index: an hour after the end of all, by the primary's clock.
Sweep ==
  /\ "sweep" \in Rows /\ doc.exists
  /\ \A i \in Holders(doc) : Clock >= doc.holders[i].end + Hour
  /\ doc' = Deleted(doc)
  /\ IF election = MaxElections THEN Secure(doc') ELSE UNCHANGED <<safe, net>>
  /\ UNCHANGED <<now, election, skew, refuses, proc, seen, settled, drawn, last>>

Tick ==
  /\ now < MaxNow /\ now' = now + 1
  /\ UNCHANGED <<election, skew, doc, safe, refuses, net, proc, seen, settled, drawn, last>>

-----------------------------------------------------------------------------
(* The client. *)

Id(p)       == <<p, proc[p].k>>
Set(p, r)   == proc' = [proc EXCEPT ![p] = r]
End(p)      == now + skew[proc[p].sample] + TTL                      \* §4.3: from one hello, whose election labels it
Command(p, op, n) == [op |-> op, id |-> Id(p), n |-> n, mode |-> proc[p].mode, beat |-> n, epoch |-> proc[p].sample,
                      end |-> End(p), rev |-> NoRev, drop |-> {}, old |-> NoRev]
Send(c)     == net' = net \cup {c}
Quiet       == UNCHANGED <<now, election, skew, doc, safe, refuses, seen, settled, drawn, last>>

\* Its lease may still be at work: until a margin after its deadline, unless it was let go of.
InHand(p)   == proc[p].phase \in {"has", "renewing"}
Live(p)     == InHand(p) /\ now < proc[p].trust + Margin

Hello(p) ==
  /\ proc[p].phase \in {"idle", "has"} /\ proc[p].sample # election
  /\ Set(p, [proc[p] EXCEPT !.sample = election])
  /\ UNCHANGED net /\ Quiet

\* acquire, free: an upsert that inserts and nothing else
Claim(p) ==
  /\ proc[p].phase = "idle" /\ proc[p].k < Attempts
  /\ \E m \in Modes :
       LET k == proc[p].k + 1 IN
       /\ Set(p, [proc[p] EXCEPT !.phase = "claiming", !.k = k, !.n = 1, !.mode = m, !.sent = now, !.rev = <<<<p, k>>, 1>>, !.old = NoRev])
       /\ Send([Command(p, "insert", 1) EXCEPT !.id = <<p, k>>, !.mode = m])
  /\ Quiet

\* held: the upsert ran into the document (a refusal that is answered at once; else GiveUp)
Refused(p) ==
  /\ proc[p].phase = "claiming"
  /\ doc.exists /\ ~Holds(doc, Id(p))
  /\ Set(p, [proc[p] EXCEPT !.phase = "held"])
  /\ UNCHANGED net /\ Quiet

\* A look: whom it saw, with what, and since when the same beat. It is remembered across attempts.
Look(p) ==
  /\ proc[p].phase = "held" /\ doc.exists
  /\ LET news == {i \in Holders(doc) : ~\E s \in seen[p] : s.id = i /\ s.beat = doc.holders[i].beat} IN
       /\ news # {} \/ proc[p].rev # doc.rev
       /\ seen' = [seen EXCEPT ![p] = {s \in @ : Holds(doc, s.id) /\ s.id \notin news}
                                      \cup {[id |-> i, h |-> doc.holders[i], beat |-> doc.holders[i].beat, since |-> now] : i \in news}]
       /\ Set(p, [proc[p] EXCEPT !.rev = doc.rev])
  /\ UNCHANGED <<now, election, skew, doc, safe, refuses, net, settled, drawn, last>>

\* §4.3, rules 1 and 2, of what was seen. (Rule 3 is in Takeover.tla.)
MayDrop(s) == \/ s.h.epoch = election /\ s.h.end <= Clock
              \/ now >= s.since + TTL

Named(S) == {[id |-> s.id, beat |-> s.beat] : s \in S}

\* no live holder: compare-and-swap; or a join of readers, which drops only those that it may
Swap(p) ==
  /\ proc[p].phase = "held" /\ proc[p].rev[1] # Id(p)      \* it has looked
  /\ LET m == proc[p].mode  n == proc[p].n + 1
         dead  == {s \in seen[p] : MayDrop(s)}
         joins == m = "shared" /\ \A s \in seen[p] : s.h.mode = "shared" \/ s \in dead
     IN /\ joins \/ dead = seen[p]
        /\ Set(p, [proc[p] EXCEPT !.phase = "swapping", !.n = n, !.sent = now])
        /\ Send([Command(p, IF joins THEN "join" ELSE "swap", n) EXCEPT !.rev = proc[p].rev, !.drop = Named(dead)])
  /\ Quiet

Place(i) == IF \E x \in 1..Len(drawn) : drawn[x] = i THEN CHOOSE x \in 1..Len(drawn) : drawn[x] = i ELSE 0

\* The answer to a claim: a majority has it. Trust counts from before it was sent (§4.3).
Granted(p) ==
  LET trust == proc[p].sent + TTL - Margin IN
  /\ proc[p].phase \in {"claiming", "swapping", "transferring"}
  /\ safe.txn[Id(p)] = proc[p].n
  /\ now < trust
  /\ Set(p, [proc[p] EXCEPT !.phase = "has", !.trust = trust, !.sent = 0, !.rev = <<Id(p), proc[p].n>>])
  /\ IF proc[p].mode = "exclusive"
     THEN /\ drawn' = SubSeq(drawn, Max(1, Place(Id(p))), Len(drawn))
          /\ last' = IF Place(Id(p)) > Place(last) THEN Id(p) ELSE Fell
     ELSE UNCHANGED <<drawn, last>>
  /\ UNCHANGED <<now, election, skew, doc, safe, refuses, net, seen, settled>>

\* renew: one at a time; an unanswered one is given up. The library sends others beside one that is slow and takes the answer
\* of each. That is no more: the answer of an earlier one gives no more trust than that of a later one, which this model allows
\* as soon as the later one is in the log, and one that the later one has overtaken is refused, by its beat.
Renew(p) ==
  /\ "renew" \in Rows /\ InHand(p) /\ now < proc[p].trust
  /\ proc[p].n < MaxBeats
  /\ LET n == proc[p].n + 1 IN
       /\ Set(p, [proc[p] EXCEPT !.phase = "renewing", !.n = n, !.sent = now])
       /\ Send(Command(p, "renew", n))
  /\ Quiet

Renewed(p) ==
  /\ proc[p].phase = "renewing"
  /\ <<Id(p), proc[p].n>> \in safe.has
  /\ now < proc[p].trust      \* a reply after the deadline moves nothing
  /\ Set(p, [proc[p] EXCEPT !.phase = "has", !.trust = Max(@, proc[p].sent + TTL - Margin), !.sent = 0])
  /\ UNCHANGED net /\ Quiet

\* release, by the user at any time, by the engine a margin after the deadline; the work under the lease has stopped
LetGo(p) ==
  /\ InHand(p) /\ (now < proc[p].trust \/ now >= proc[p].trust + Margin)
  /\ LET n == proc[p].n + 1 IN
     \E op \in (IF proc[p].mode = "exclusive" THEN {"release"} \cup (Rows \cap {"min-hold"}) ELSE {"leave"}) :
       /\ Set(p, [proc[p] EXCEPT !.phase = "letting go", !.n = n])
       /\ Send([Command(p, op, n) EXCEPT !.end = IF op = "min-hold" THEN Clock + 1 ELSE @])
  /\ Quiet

\* w: 1: the primary's word is enough. Nothing found is as good: it is gone.
LetGone(p) ==
  LET c == <<Id(p), proc[p].n>> IN
  /\ proc[p].phase = "letting go"
  /\ c \in doc.has \/ ~Holds(doc, Id(p))
  /\ IF proc[p].mode = "shared" /\ doc.exists /\ Holders(doc) = {}
     THEN Send([Command(p, "delete", proc[p].n + 1) EXCEPT !.rev = doc.rev])     \* the last one deletes the document
     ELSE UNCHANGED net
  /\ Set(p, [Idle EXCEPT !.k = proc[p].k, !.sample = proc[p].sample])
  /\ settled' = IF Holds(doc, Id(p)) THEN settled ELSE settled \cup {Id(p)}
  /\ UNCHANGED <<now, election, skew, doc, safe, refuses, seen, drawn, last>>

\* break: an operator's mark, which ends renewals; the record goes as any other that runs out
Break(p) ==
  /\ "break" \in Rows /\ InHand(p) /\ Holds(doc, Id(p)) /\ ~doc.holders[Id(p)].barred
  /\ Send([Command(p, "break", 99) EXCEPT !.end = 0, !.epoch = 0])
  /\ UNCHANGED proc /\ Quiet

\* hand over inside the process: the old lease ends before the command leaves
HandOver(p) ==
  /\ "transfer" \in Rows /\ proc[p].phase = "has" /\ proc[p].mode = "exclusive" /\ proc[p].k < Attempts /\ now < proc[p].trust
  /\ LET k == proc[p].k + 1 IN
       /\ Set(p, [proc[p] EXCEPT !.phase = "transferring", !.k = k, !.n = 1, !.sent = now, !.old = Id(p)])
       /\ Send([Command(p, "transfer", 1) EXCEPT !.id = <<p, k>>, !.old = Id(p), !.rev = proc[p].rev])
  /\ Quiet

\* An outcome that is unknown, or known too late: clean up by id, in the attempt's session (§4.6).
GiveUp(p) ==
  /\ proc[p].phase \in {"claiming", "swapping", "transferring", "held"}
  /\ LET n == proc[p].n + 1 IN
       /\ Set(p, [proc[p] EXCEPT !.phase = "cleaning", !.n = n])
       /\ Send([Command(p, IF proc[p].mode = "shared" THEN "undo-join" ELSE "undo", n) EXCEPT !.rev = proc[p].rev, !.old = proc[p].old, !.end = 0, !.epoch = 0])
  /\ Quiet

CleanedUp(p) ==
  /\ proc[p].phase = "cleaning"
  /\ safe.txn[Id(p)] = proc[p].n \/ refuses[Id(p)] = proc[p].n
  /\ Set(p, [Idle EXCEPT !.k = proc[p].k, !.sample = proc[p].sample])
  /\ settled' = settled \cup {Id(p)} \cup ({proc[p].old} \cap Ids)
  /\ drawn' = SelectSeq(drawn, LAMBDA i : i # Id(p))
  /\ UNCHANGED <<now, election, skew, doc, safe, refuses, net, seen, last>>

-----------------------------------------------------------------------------
Next ==
  \/ Tick \/ Commit \/ Elect \/ Sweep
  \/ \E c \in net : Apply(c) \/ ApplyNothing(c)
  \/ \E p \in Procs :
       \/ Hello(p) \/ Claim(p) \/ Refused(p) \/ Look(p) \/ Swap(p) \/ Granted(p)
       \/ Renew(p) \/ Renewed(p) \/ LetGo(p) \/ LetGone(p) \/ Break(p) \/ HandOver(p) \/ GiveUp(p) \/ CleanedUp(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold (design.md §1). *)

\* No two leases in conflict, and none within a margin after another's deadline.
Exclusion ==
  LET live == {p \in Procs : Live(p)} IN
  \A p, q \in live : p # q => proc[p].mode = "shared" /\ proc[q].mode = "shared"

\* A live lease's record is where a majority has it, whatever others do: nobody's call removes it.
NoCollateral == \A p \in Procs : Live(p) => Holds(safe, Id(p))

\* Tokens rise: grants come in the order in which the log took their claims.
Tokens == last # Fell

\* What was let go or cleaned up does not come back. (After an election a late copy may; it is dropped as a dead holder is.)
NoGhosts == \A i \in settled : ~Holds(doc, i)

Symmetry == Permutations(Procs)
=============================================================================
