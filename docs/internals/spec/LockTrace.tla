----------------------------- MODULE LockTrace -----------------------------
(***************************************************************************)
(* A history of the real library, asked of Lock.tla: is it one of the      *)
(* behaviours that the specification allows?  package trace makes the      *)
(* histories, one for each key of a run of the simulation; README.md       *)
(* beside this file tells how to run it.                                   *)
(*                                                                         *)
(* What a command does is Lock's: Matches, After, and the promises.  What  *)
(* was observed takes the place of choice: which command was sent when,    *)
(* what a primary made of it, what a majority has, what the users of a     *)
(* lease saw.  Each step has conditions, and Need prints the first that    *)
(* does not hold; the history ends there, and is refused.                  *)
(*                                                                         *)
(* A process of Lock is an attempt here, for one client has several under  *)
(* way at a time; `seen` is a client's.  Nothing is unobserved but what a  *)
(* client has taken in of an answer that came: it may have, from then on.  *)
(*                                                                         *)
(* It refines Lock where Lock is too coarse for a history: a deposed       *)
(* primary has a document of its own; an election keeps any part of the    *)
(* log; hellos judge, as in Takeover; rule 3 of §4.3; the line, permits;   *)
(* writes without transaction numbers.                                     *)
(***************************************************************************)
EXTENDS Lock

CONSTANTS Traces,      \* the histories
          Minute, Slow \* of rule 3, and when a refusal was slow (§4.1)

VARIABLES
  trace, at,  \* which history, and which step of it comes next
  tail,       \* the documents that the log had after safe, the newest last
  past,       \* the document as the primary of the election before has it, which may not know that it was deposed
  looks,      \* what was read, by the command that reads, until it is answered
  tokens      \* the greatest token of all grants, and of the exclusive ones

traceVars == <<trace, at, tail, past, looks, tokens>>

-----------------------------------------------------------------------------
(* How a history is written. *)

\* The id of an attempt is its number (the configuration puts these in the place of Lock's): TLC finds it faster.
TraceIds   == Procs
TraceId(p) == p

\* A revision is the place of the command that wrote it.
TraceRev(c) == c.k
TraceNoRev  == 0

\* A command is a tuple, for TLC takes more time to read a history than to decide about it: conditions are bits, and
\* what a command without a lease has none of is left out, and so is the line where it does not matter. A place in line is a number.
Full(t, r, l) ==
  LET Bit(n) == (t[5] \div n) % 2 = 1 IN
  [k |-> t[1], op |-> t[2], id |-> t[3], p |-> t[3], n |-> t[4], client |-> t[6], began |-> t[7],
   inside |-> Bit(1), earlier |-> Bit(2), judged |-> Bit(4), nobody |-> Bit(8), stays |-> Bit(16), unheld |-> Bit(32), majorly |-> Bit(64),
   sharable |-> Bit(128), dated |-> Bit(256), spots |-> l[1], whole |-> l[2], out |-> l[3], joins |-> l[4], behind |-> l[5],
   mode |-> r[8], permits |-> r[9], beat |-> r[10], epoch |-> r[11], end |-> r[12], lasts |-> r[13], rev |-> r[14],
   drop |-> {[id |-> x[1], beat |-> x[2]] : x \in r[15]}, old |-> r[16], from |-> r[16], recent |-> r[17]]
Without == <<0, "", 0, 0, 0, 0, 0, "", 0, 0, 0, 0, 0, 0, {}, 0, 0>>
NoLine  == <<{}, <<>>, {}, 0, 0>>

ASSUME TLCSet(1, Traces)        \* so that they are evaluated once
History  == TLCGet(1)[trace]
Numbered == History.numbered
Routers  == History.routers      \* each shard has a clock of its own: no date is judged, and no trust rests on one
Event    == History.steps[at]
Sent(k)  == LET t == History.commands[k] IN Full(t, IF Len(t) < 17 THEN Without ELSE t, IF Len(t) \in {8, 18} THEN t[Len(t)] ELSE NoLine)

Need(condition, text) == IF condition THEN TRUE ELSE PrintT(<<"refused", trace, at, text>>) /\ FALSE

Claims    == {"insert", "swap", "join", "transfer"}
Undoes    == {"undo", "undo-join"}
LetsGo    == {"release", "leave", "min-hold"}
InNobody  == {"note", "look", "delete"}      \* about no attempt

Fresh == [phase |-> "idle", k |-> 1, n |-> 0, mode |-> "none", sent |-> 0, trust |-> 0, rev |-> NoRev, old |-> NoRev, sample |-> 1,
          bound |-> 0, next |-> 0, beat |-> 0, ran |-> 0, renews |-> 0, twin |-> FALSE, told |-> -1, from |-> 0, undone |-> -1, left |-> FALSE, found |-> FALSE, again |-> -1, offered |-> FALSE]
Empty == [exists |-> FALSE, rev |-> NoRev, holders |-> [i \in Ids |-> NoOne], txn |-> [i \in Ids |-> 0], has |-> {}, line |-> <<>>, permits |-> 0, lasts |-> [i \in Ids |-> 0]]
Clients == {History.commands[k][6] : k \in DOMAIN History.commands}

TraceInit ==
  /\ trace \in 1..Len(Traces) /\ at = 1
  /\ now = 0 /\ election = 1 /\ skew = <<>>
  /\ doc = Empty /\ safe = Empty /\ past = Empty /\ tail = <<>>
  /\ refuses = [i \in Ids |-> 0]
  /\ net = {} /\ proc = [p \in Procs |-> Fresh]
  /\ seen = [c \in Clients |-> {}]
  /\ settled = {} /\ drawn = <<>> /\ last = 0
  /\ looks = {} /\ tokens = [all |-> 0, exclusive |-> 0]

Of(p, r) == proc' = [proc EXCEPT ![p] = r]

-----------------------------------------------------------------------------
(* What a client may send. *)

\* §4.3, the rules by which c may drop the holder x. told: the hellos that its client was answered, <<sent, epoch, time>>.
ByHello(s, told) == \E h \in told : h[1] >= s.since /\ h[2] = s.h.epoch /\ s.h.end <= h[3]
ByStillness(s)   == now' >= s.since + s.lasts
LongPast(s, latest) == ~Routers /\ s.h.end + Minute <= latest
MayDropAt(c, x, told, latest) ==
  \E s \in seen[c.client] : /\ s.id = x.id /\ s.beat = x.beat
                            /\ ByHello(s, told) \/ ByStillness(s) \/ LongPast(s, latest)

\* What is offered to a claim it takes by its place in line: an exclusive one that is the first, or comes after one that it passes.
TakesOffer(c) == \/ c.op = "swap" /\ c.unheld /\ \E x \in c.spots : x[1] = 0
                 \/ c.op = "join" /\ c.sharable /\ \E x \in c.spots : x[1] = -1

\* An offer that came to nothing because the document is gone: the claim goes on in its session, which bars what came before.
GoesOn(c) == LET a == proc[c.p] IN c.op = "insert" /\ a.phase = "held" /\ a.offered /\ (~Numbered \/ (c.inside /\ c.n > a.n))

SendClaim(c, told, shown) ==
  LET a == proc[c.p] IN
  /\ IF c.op \in {"insert", "transfer"} /\ c.mode # "shared"
     THEN Need(a.phase = "idle" \/ GoesOn(c), "an id is sent once")
     ELSE Need(a.phase \in {"idle", "held"}, "the claim before is not answered, or an id is used again")
  /\ Need(c.op \in {"swap", "join"} => (c.nobody \/ c.whole # <<>> \/ c.spots # {}), "it does not ask who is in line")
  /\ Need((c.op = "insert") \/ (c.rev # NoRev) \/ (c.op = "transfer" /\ c.from # 0) \/ TakesOffer(c), "it names neither a revision nor the holder")
  /\ Need(\A x \in c.drop : MayDropAt(c, x, told, shown), "it drops a holder that none of the three rules gives up")
  /\ IF c.op # "transfer" THEN TRUE
     ELSE /\ Need(c.from # 0, "it takes the place of nobody")
          /\ Need(\/ proc[c.from].told >= 0
                  \/ proc[c.from].phase = "won", \* its caller gave up: nobody was given it
                  "the lease that it hands over is not over yet")
  /\ Of(c.p, [a EXCEPT !.phase = "claiming", !.n = c.n, !.mode = c.mode, !.sent = c.began, !.bound = 0, !.from = c.from, !.offered = TakesOffer(c)])

\* The lease was in hand when its client began with the renewal. The driver may hold that back, while it knows of no primary; and
\* one that was answered, but left too little, is repeated once in the same call (again is when that one began). Another goes
\* beside one that is slow, and may overtake it (renews is when the one with the greatest beat was sent).
SendRenew(c) ==
  LET a == proc[c.p] IN
  /\ Need(\/ a.phase \in {"has", "won"} /\ a.told < 0
          \/ a.told >= c.began
          \/ a.again >= 0 /\ a.told >= a.again, "it renews a lease that is not in hand")
  /\ Need(c.earlier, "it does not ask for an earlier beat")
  /\ Need(c.beat > a.beat \/ c.began < a.renews, "its beat is not greater than all before")
  /\ Of(c.p, [a EXCEPT !.beat = Max(@, c.beat), !.renews = IF c.beat > a.beat THEN now' ELSE @, !.again = -1])

\* By the user at any time, for that says that the work has stopped; by the engine a margin after it said that the lease
\* is over, or if nobody was given it.
SendLetGo(c) ==
  LET a == proc[c.p] IN
  /\ Need(c.p # 0, "it names no holder")
  /\ Need(c.op = "release" => (c.stays \/ c.nobody), "it removes a document and does not ask who is in line")
  /\ Need(\/ a.phase \notin {"has", "over"}
          \/ a.phase = "over" /\ now' >= a.told + Margin, "the work under it has had no margin to stop")
  /\ Need(a.phase = "letting go" => a.told >= 0, "the lease is not over yet for its holder")
  /\ Of(c.p, [a EXCEPT !.left = @ \/ c.op = "leave"])

\* A claim that the driver never sent, as it found no server, is cleaned up all the same.
SendUndo(c) ==
  LET a == proc[c.p] IN
  /\ Need(c.p # 0, "it names no holder")
  /\ Need(a.phase # "has", "it cleans up a lease in hand")
  /\ Need(a.mode = "none" \/ c.op = IF a.mode = "shared" THEN "undo-join" ELSE "undo", "it is not the clean-up of that mode")
  /\ Need(c.op = "undo" => (c.stays \/ c.nobody), "it removes a document and does not ask who is in line")
  /\ Need((Numbered /\ now' < a.sent + TTL) => c.inside, "it is not in the session of its attempt")
  /\ Need(c.inside => c.n > a.n, "its number is not greater")
  /\ Of(c.p, [a EXCEPT !.phase = IF a.phase = "over" THEN "over" ELSE "cleaning", !.undone = now', !.n = IF c.inside THEN c.n ELSE @])

Send1(k, told, shown) ==
  LET c == Sent(k) IN
  /\ Need(c.op # "", "it is no row of the protocol")
  /\ CASE c.op \in Claims -> SendClaim(c, told, shown)
       [] c.op = "renew" -> SendRenew(c)
       [] c.op \in LetsGo -> SendLetGo(c)
       [] c.op \in Undoes -> SendUndo(c)
       [] c.op = "delete" -> Need(c.unheld /\ c.nobody, "it does not ask that nobody holds the key, and nobody waits") /\ UNCHANGED proc
       [] OTHER -> UNCHANGED proc
  /\ UNCHANGED <<election, doc, safe, refuses, seen, settled, drawn, last, tail, past, looks, tokens>>

-----------------------------------------------------------------------------
(* What a primary makes of it. *)

\* Lock's Known; without transaction numbers a server knows nothing.
KnownTo(d, c) == Numbered /\ IF c.inside THEN c.n <= Max(d.txn[c.id], refuses[c.id]) ELSE Rev(c) \in d.has

\* Lock's filters, and what they say besides: a renewal or a transfer asks that the holder has not run out, the others who is in line.
Shared(d)  == \E i \in Holders(d) : d.holders[i].mode = "shared"
Alive(d, i, c) == ~c.judged \/ d.holders[i].end > c.recent \/ d.holders[i].epoch # c.epoch
InLine(line, x) == IF x[1] < 0 THEN \E j \in 1..Len(line) : line[j] = x[2] ELSE x[1] < Len(line) /\ line[x[1] + 1] = x[2]
Asked1(d, c) ==
  /\ c.nobody => d.line = <<>>
  /\ c.whole # <<>> => d.line = c.whole
  /\ \A x \in c.spots : InLine(d.line, x)
  /\ c.unheld => Holders(d) = {}
  /\ c.sharable => (Holders(d) = {} \/ (Shared(d) /\ d.permits = 0))
Finds(d, c) == Asked1(d, c) /\
  CASE TakesOffer(c) -> d.exists
    [] c.op = "transfer" -> /\ d.exists /\ (c.rev = NoRev \/ d.rev = c.rev) /\ Holds(d, c.old)
                            /\ ~d.holders[c.old].barred /\ Alive(d, c.old, c)
    [] c.op = "renew" -> Matches(d, c) /\ Alive(d, c.id, c)
    [] c.op = "delete" -> d.exists
    [] (c.op = "undo" /\ c.from = 0) -> Holds(d, c.id)
    [] c.op = "undo-join" -> d.exists /\ (Holds(d, c.id) \/ (c.rev # NoRev /\ d.rev = c.rev))
    [] OTHER -> Matches(d, c)

\* Lock's updates, with the line. A swap of readers (no live holder is left) is a join that drops all. An exclusive holder that leaves
\* a document for those in line moves its revision.
Leaves(d, c) ==
  LET left == IF c.op \in InNobody \ {"delete"} THEN d
              ELSE IF c.stays THEN [d EXCEPT !.rev = Rev(c), !.holders = [i \in Ids |-> IF i \in {c.id, c.from} THEN NoOne ELSE @[i]]]
              ELSE After(d, c)
      line == SelectSeq(d.line, LAMBDA p : p \notin c.out) IN
  [left EXCEPT
     !.line = IF ~left.exists THEN <<>> ELSE IF c.joins = 0 THEN line ELSE IF c.behind \notin 0..Len(line) THEN Append(line, c.joins)
              ELSE SubSeq(line, 1, c.behind) \o <<c.joins>> \o SubSeq(line, c.behind + 1, Len(line)),
     !.lasts = IF c.op \in Claims \cup {"min-hold"} THEN [@ EXCEPT ![c.id] = c.lasts]
               ELSE IF c.op = "renew" THEN [@ EXCEPT ![c.id] = Max(@, c.lasts)] ELSE @,
     !.permits = IF c.op \in Claims /\ c.permits >= 0 THEN c.permits ELSE @]

RememberIt(d, c) ==
  IF c.op = "look" \/ (c.p = 0 /\ c.op # "delete") THEN d
  ELSE IF c.inside THEN [d EXCEPT !.txn[c.id] = Max(@, c.n)] ELSE IF Numbered THEN [d EXCEPT !.has = @ \cup {Rev(c)}] ELSE d

\* What was observed of a document: <<>>, or its revision, its holders and its line.
Shows(d, o) ==
  IF o = <<>> THEN ~d.exists
  ELSE /\ d.exists /\ d.rev = o[1] /\ d.line = o[3]
       /\ {<<i, d.holders[i].beat, d.holders[i].epoch, d.holders[i].end, d.holders[i].barred>> : i \in Holders(d)} = o[2]

\* A sight of each holder, for those who judge. seen and looked are when the answer comes.
Sights(d) == {[id |-> i, beat |-> d.holders[i].beat, h |-> d.holders[i], lasts |-> d.lasts[i]] : i \in Holders(d)}

\* A claim that was applied is trusted for its TTL, from before it was sent, and no longer than its end says by the clock
\* of the primary that applied it.
Bound(c, clock) == IF Routers \/ c.began + TTL <= now' + (c.end - clock) THEN c.began + TTL ELSE now' + (c.end - clock)

Run(k, term, hit, clock, o) ==
  LET c == Sent(k)
      d == IF term = election THEN doc ELSE past
      silent == c.op \in {"note", "look"}
      finds == IF silent THEN hit ELSE ~KnownTo(d, c) /\ Finds(d, c)
      after == IF hit THEN RememberIt(Leaves(d, c), c) ELSE d
      a == IF c.p = 0 THEN Fresh ELSE proc[c.p]
      swapped == hit /\ c.op \in {"swap", "transfer"}
      \* Behind a router a release is a look, too: under MinHold its own holder's silence counts from then (§4.3).
      shows == silent \/ (Routers /\ hit /\ c.op \in LetsGo)
  IN
  /\ Need(term >= election - 1, "a primary that was deposed long ago executes it")
  /\ Need(hit => finds, "the server has executed what does not match")
  /\ Need((term = election /\ ~hit) => (~finds \/ c.dated), "the server has not executed what matches")
  \* A leave keeps rev. It may be on a deposed primary alone, where the claim's look was answered (§4.2).
  /\ Need(swapped => \A i \in Holders(d) \ ({x.id : x \in c.drop} \cup {c.old}) : proc[i].left, "it drops a holder that it does not name")
  /\ Need((hit /\ c.op = "join") => \A i \in Holders(after) : after.holders[i].mode = "shared", "readers beside a writer")
  /\ Need(hit => Shows(after, o), "it leaves another document than the specification says")
  /\ IF term = election
     THEN /\ doc' = after
          /\ tail' = IF hit THEN Append(tail, after) ELSE tail
          /\ past' = past
          /\ refuses' = IF c.inside /\ ~hit THEN [refuses EXCEPT ![c.id] = Max(@, c.n - 1)] ELSE refuses \* itself it may still execute: a twin
          /\ settled' = IF hit /\ c.op \in {"release", "leave"} /\ Numbered THEN settled \cup {c.id} ELSE settled
     ELSE /\ past' = after
          /\ UNCHANGED <<doc, tail, refuses, settled>>
  /\ drawn' = IF hit /\ c.op \in Claims THEN Append(SelectSeq(drawn, LAMBDA i : i # c.id), c.id) ELSE drawn
  /\ IF ~hit \/ c.p = 0 THEN UNCHANGED proc
     ELSE CASE c.op \in Claims -> Of(c.p, [a EXCEPT !.bound = Bound(c, clock), !.beat = c.beat, !.ran = c.beat])
            [] c.op = "renew" -> Of(c.p, [a EXCEPT !.next = Max(@, Bound(c, clock)), !.ran = c.beat])
            [] c.op \in Undoes -> Of(c.p, [a EXCEPT !.found = TRUE])
            [] OTHER -> UNCHANGED proc
  /\ looks' = IF shows THEN looks \cup {[k |-> k, saw |-> Sights(IF c.majorly THEN safe ELSE after)]} ELSE looks
  /\ UNCHANGED <<election, safe, seen, last, tokens>>

\* Renewals count once a majority has them, if the lease is still trusted then.
Trusted(p) ==
  LET a == proc[p] IN
  IF a.next = 0 \/ safe'.holders[p].mode = "none" \/ safe'.holders[p].beat < a.ran THEN a
  ELSE [a EXCEPT !.trust = IF a.phase = "has" /\ now' >= a.trust THEN @ ELSE Max(@, a.next - Margin), !.next = 0]

CommitAll(left) ==
  /\ Need(left <= Len(tail), "a majority has lost what it had")
  /\ safe' = IF left < Len(tail) THEN tail[Len(tail) - left] ELSE safe
  /\ tail' = SubSeq(tail, Len(tail) - left + 1, Len(tail))
  /\ proc' = [p \in Procs |-> IF proc[p].phase \in {"won", "has"} THEN Trusted(p) ELSE proc[p]]
  /\ UNCHANGED <<election, doc, refuses, seen, settled, drawn, last, past, looks, tokens>>

ElectOne(term, lost) ==
  /\ Need(lost <= Len(tail), "an election has lost what a majority had")
  /\ election' = term /\ past' = doc
  /\ doc' = IF lost = 0 THEN doc ELSE IF lost < Len(tail) THEN tail[Len(tail) - lost] ELSE safe
  /\ tail' = SubSeq(tail, 1, Len(tail) - lost)
  /\ refuses' = [i \in Ids |-> 0] /\ settled' = {}
  /\ UNCHANGED <<safe, proc, seen, drawn, last, looks, tokens>>

-----------------------------------------------------------------------------
(* What comes back. *)

\* took: by the client's own clock, which stands still while its machine sleeps unnoticed.
Answer(k, hit, took) ==
  LET c == Sent(k)
      a == IF c.p = 0 THEN Fresh ELSE proc[c.p]
      mine == {l \in looks : l.k = k}
      saw == UNION {l.saw : l \in mine}
      old == seen[c.client]
      Since(x) == LET same == {s \in old : s.id = x.id /\ s.beat = x.beat} IN
                  IF same = {} THEN now' ELSE (CHOOSE s \in same : TRUE).since
  IN
  /\ seen' = IF mine = {} THEN seen
             ELSE [seen EXCEPT ![c.client] = {s \in old : ~\E x \in saw : x.id = s.id /\ x.beat = s.beat}
                     \cup {[id |-> x.id, beat |-> x.beat, h |-> x.h, lasts |-> x.lasts, since |-> Since(x)] : x \in saw}]
  /\ looks' = looks \ mine
  /\ IF c.p = 0 THEN UNCHANGED proc
     ELSE CASE (c.op \in Claims /\ a.phase = "claiming" /\ a.n = c.n) ->
                 /\ Need(hit => (safe.txn[c.id] >= c.n \/ ~c.inside), "it is answered before a majority has it")
                 /\ Of(c.p, [a EXCEPT !.phase = IF hit THEN "won" ELSE "held", !.twin = Numbered /\ ~hit /\ took > Slow])
            [] (c.op = "note" /\ c.inside) -> Of(c.p, [a EXCEPT !.twin = FALSE])
            [] (c.op = "renew" /\ hit) -> Of(c.p, [a EXCEPT !.again = c.began])
            [] OTHER -> UNCHANGED proc
  /\ settled' = IF c.op \in Undoes /\ (hit \/ (Numbered /\ c.inside)) THEN (settled \cup {c.id}) \cup ({c.old} \cap Ids) ELSE settled
  /\ UNCHANGED <<election, doc, safe, refuses, drawn, last, tail, past, tokens>>

Has(p, token, resumed) ==
  LET a == proc[p]  trust == a.bound - Margin
      least == IF a.mode = "shared" THEN tokens.exclusive ELSE tokens.all IN
  /\ Need(a.phase = "won", "no answer has granted it")
  /\ Need(now' < Max(trust, a.trust), "the answer came too late to be a grant")
  /\ Need(resumed \/ token > least, "its token is not greater than those before")
  /\ Need(a.mode = "exclusive" => Place(p) > Place(last), "Tokens")
  /\ Of(p, [a EXCEPT !.phase = "has", !.trust = Max(trust, @)])
  /\ tokens' = [all |-> Max(tokens.all, token), exclusive |-> IF a.mode = "shared" THEN tokens.exclusive ELSE Max(tokens.exclusive, token)]
  /\ IF a.mode = "exclusive"
     THEN /\ drawn' = SubSeq(drawn, Max(1, Place(p)), Len(drawn))
          /\ last' = p
     ELSE UNCHANGED <<drawn, last>>
  /\ UNCHANGED <<election, doc, safe, refuses, seen, settled, tail, past, looks>>

Told(p) ==
  LET a == proc[p] IN
  /\ Need(a.phase = "has" => now' <= a.trust + Margin, "its holder is told when others may have the key already")
  /\ Of(p, [a EXCEPT !.phase = IF @ = "has" THEN "over" ELSE @, !.told = now'])
  /\ UNCHANGED <<election, doc, safe, refuses, seen, settled, drawn, last, tail, past, looks, tokens>>

UserLetsGo(p) ==
  LET a == proc[p] IN
  /\ Need(a.phase = "has" => now' <= a.trust + Margin, "its holder was not told, and others may have the key already")
  /\ Of(p, [a EXCEPT !.phase = "letting go"])
  /\ UNCHANGED <<election, doc, safe, refuses, seen, settled, drawn, last, tail, past, looks, tokens>>

\* §4.6: what was claimed and not answered, or refused so slowly that it may have a twin, is cleaned up, until that is
\* settled: without numbers, until a clean-up has found it or it has run out. free: nothing kept its client from that.
\* Nothing more comes of this attempt; another one has its number from now on.
Forget(p, free) ==
  LET a == proc[p]
      Less(d) == [d EXCEPT !.txn[p] = 0, !.holders[p] = NoOne]
  IN
  /\ Need(free => a.phase # "claiming", "an attempt of unknown outcome was not cleaned up")
  /\ Need(free => ~(a.phase = "held" /\ a.twin), "a slow refusal was not cleaned up")
  /\ Need((free /\ ~Numbered /\ a.phase = "cleaning" /\ ~a.found) => a.undone >= a.sent + TTL - Slow * 6, "a clean-up that found nothing was not repeated")
  /\ Of(p, Fresh)
  /\ doc' = Less(doc) /\ safe' = Less(safe) /\ past' = Less(past)
  /\ tail' = [i \in 1..Len(tail) |-> Less(tail[i])]
  /\ refuses' = [refuses EXCEPT ![p] = 0]
  /\ seen' = [c \in DOMAIN seen |-> {s \in seen[c] : s.id # p}]
  /\ settled' = settled \ {p}
  /\ drawn' = SelectSeq(drawn, LAMBDA i : i # p)
  /\ last' = IF last = p THEN 0 ELSE last
  /\ UNCHANGED <<election, looks, tokens>>

Over ==
  /\ PrintT(<<"allowed", trace, at>>)
  /\ UNCHANGED <<election, doc, safe, refuses, proc, seen, settled, drawn, last, tail, past, looks, tokens>>

-----------------------------------------------------------------------------
Do(e) ==
  CASE e[2] = "send"    -> Send1(e[3], e[4], e[5])
    [] e[2] = "run"     -> Run(e[3], e[4], e[5], e[6], e[7])
    [] e[2] = "answer"  -> Answer(e[3], e[4], e[5])
    [] e[2] = "commit"  -> CommitAll(e[3])
    [] e[2] = "elect"   -> ElectOne(e[3], e[4])
    [] e[2] = "has"     -> Has(e[3], e[4], e[5])
    [] e[2] = "told"    -> Told(e[3])
    [] e[2] = "lets go" -> UserLetsGo(e[3])
    [] e[2] = "forget"  -> Forget(e[3], e[4])
    [] e[2] = "over"    -> Over

Promised ==
  /\ Need(Exclusion', "Exclusion")
  /\ Need(NoCollateral', "NoCollateral")
  /\ Need(NoGhosts', "NoGhosts")

\* now' is the time of the step: its conditions ask for that, and so do the promises, which speak of the state after it.
TraceNext ==
  /\ at <= Len(History.steps)
  /\ now' = Event[1]
  /\ Do(Event)
  /\ at' = at + 1
  /\ UNCHANGED <<skew, net, trace>>
  /\ Promised

\* All that there is of a history at a step follows from the steps before.
Where == <<trace, at>>

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, traceVars>>
=============================================================================
