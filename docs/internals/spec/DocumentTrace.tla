--------------------------- MODULE DocumentTrace ---------------------------
(***************************************************************************)
(* A history of the real package doclock, asked of Document.tla: is it one *)
(* of the behaviours that the specification allows?  package trace makes   *)
(* the histories, one for each document of a run of the simulation with    *)
(* updates; README.md beside this file tells how to run it.                *)
(*                                                                         *)
(* What a command finds and what it leaves is Document's, and so are the   *)
(* promises about changes.  What was observed takes the place of choice.   *)
(* Each step has conditions, and Need prints the first that does not hold; *)
(* the history ends there, and is refused.                                 *)
(*                                                                         *)
(* The lock of a claim has a number, and a write is the place of its       *)
(* command.  The value is the list of the changes, as Document has it.     *)
(* Instead of searching all documents after each step, a promise is asked  *)
(* where it may break: that a save writes over nothing and that no change  *)
(* is there twice, or of which it was told that it surely is not, when a   *)
(* save is applied; that a change is there and stays, when it is told.     *)
(* What a majority has is never lost, so it stays.                         *)
(*                                                                         *)
(* It refines Document where that is too coarse: hand-overs, a clean-up of *)
(* a hand-over, deposed primaries.  A break and the line are no steps.     *)
(***************************************************************************)
EXTENDS Document, TLC

CONSTANTS Traces, Numbers \* the histories, and the numbers of locks

VARIABLES
  trace, at,             \* which history, and which step of it comes next
  images,                \* the document that a majority has, and that after each entry of the log
  past,                  \* the document as the primary of the election before has it
  lock                   \* what is known of each lock

traceVars == <<trace, at, images, past, lock>>

ASSUME TLCSet(1, Traces)        \* so that they are evaluated once
History == TLCGet(1)[trace]
Event   == History.steps[at]

TraceNone == 0
TraceSent(k) ==
  LET t == History.commands[k] IN
  [op |-> t[1], id |-> t[2], from |-> t[3], drops |-> t[4], at |-> t[5], lasts |-> t[6], until |-> t[7], in |-> t[8],
   soft |-> t[9], saves |-> t[10], val |-> t[11]]
TraceId(k) == History.commands[k][2]

Need(condition, text) == IF condition THEN TRUE ELSE PrintT(<<"refused", trace, at, text>>) /\ FALSE

\* asked: its claim was sent, and not answered with nothing; image: the value when that was applied; has, got: it was answered, with
\* this value; ends: when each write that renewed it may be taken for over.
Fresh == [asked |-> FALSE, has |-> FALSE, got |-> <<>>, image |-> <<>>, ends |-> <<>>]
Free  == [lock |-> Unlocked, val |-> <<>>]
Slack == History.skew + 10

TraceInit ==
  /\ trace \in 1..Len(Traces) /\ at = 1
  /\ now = 0 /\ election = 1 /\ sent = <<>> /\ proc = <<>> /\ once = {} /\ safe = 0
  /\ log = <<>> /\ images = <<Free>> /\ past = Free
  /\ told = [made |-> {}, not |-> {}]
  /\ lock = [i \in Numbers |-> Fresh]

Here1    == images[Len(images)]
InLog(k) == \E i \in 1..Len(log) : log[i] = k
Of(i, r) == lock' = [lock EXCEPT ![i] = r]

-----------------------------------------------------------------------------
\* Claim: under an id of its own, where nobody is, or in the place of a holder that is over, who is named with its beat.
SendClaim(c) ==
  /\ Need(~lock[c.id].asked, "an id is sent again, and the claim before may have been applied")
  /\ Need(c.drops # -1, "it names a beat that nobody wrote")
  /\ Need(c.drops > 0 => (c.from # 0 /\ c.drops \in DOMAIN lock[c.from].ends /\ now' >= lock[c.from].ends[c.drops] - Slack),
          "it drops a holder that is not over")
  /\ Of(c.id, [lock[c.id] EXCEPT !.asked = TRUE])

\* Finish: what the claim's image has, and one change behind it.
SavesOne(holder, v) == Len(v) > 0 /\ SubSeq(v, 1, Len(v) - 1) = lock[holder].got
SendFinish(c, holder) ==
  /\ Need(holder # 0, "it names no holder")
  /\ Need(lock[holder].has, "it saves under a lock that is not granted")
  /\ Need(SavesOne(holder, c.val), "it saves something else than one change more than it was given")
  /\ Need(c.val[Len(c.val)] \notin told.not, "it saves a change that surely is not made")

Send1(k) ==
  LET c == TraceSent(k) IN
  /\ CASE c.op = "claim"     -> SendClaim(c)
       [] c.op = "hand over" -> (c.saves => SendFinish(c, c.from)) /\ Need(c.from # 0, "it names no holder") /\ SendClaim(c)
       [] c.op = "finish"    -> SendFinish(c, IF c.from = 0 THEN c.id ELSE c.from) /\ UNCHANGED lock
       [] OTHER -> Need(c.id # 0, "it names no holder") /\ UNCHANGED lock
  /\ UNCHANGED <<election, log, images, past, told>>

SendAgain(k) ==
  /\ Need(~(TraceSent(k).op = "claim" /\ TraceSent(k).soft), "the claim of an update is sent again")
  /\ UNCHANGED <<election, log, images, past, told, lock>>

-----------------------------------------------------------------------------
Finds(d, c, k) ==
  CASE c.op = "hand over" -> Holds(d, c.from)
    [] c.op \in {"finish", "release"} -> Holds(d, c.id) \/ (c.from # 0 /\ Holds(d, c.from))
    [] c.op = "renew" -> Holds(d, c.id) /\ d.lock.beat < k
    [] c.op = "claim" -> Matches(d, k)

Leaves(d, c, k) ==
  CASE c.op = "hand over" -> [lock |-> [id |-> c.id, beat |-> k, saves |-> 0], val |-> IF c.saves THEN c.val ELSE d.val]
    [] c.op = "release"   -> After(d, [w |-> None])
    [] OTHER -> After(d, [w |-> k])

\* When a write may be taken for over: after its TTL since it was sent, and no earlier than its date says, if that is of the clock
\* of the primary that applied it. A renewal leaves no earlier date than there was.
Least(a, b)   == IF a < b THEN a ELSE b
Drifted(long) == long - (long \div 1000)
EndOf(d, c, term, clock) ==
  LET end    == IF c.in \in {0, term} THEN Least(c.at + Drifted(c.lasts), now' + Drifted(c.until - clock)) ELSE c.at + Drifted(c.lasts)
      before == lock[c.id].ends[d.lock.beat]
  IN IF c.op = "renew" /\ before > end THEN before ELSE end

Shows(d, o) == d.lock.id = o[1] /\ (Len(o) > 1 => d.val = o[2])

Run(k, term, clock, o) ==
  LET c == TraceSent(k)
      deposed == term # election
      d == IF deposed THEN past ELSE Here1
      after == Leaves(d, c, k)
      a == lock[c.id]
  IN
  /\ Need(term >= election - 1, "a primary that was deposed long ago executes it")
  /\ Need(Finds(d, c, k), "the server has executed what does not match")
  /\ Need(Shows(after, o), "it leaves another document than the specification says")
  /\ Need(Begins(d.val, after.val), "NoLostUpdate")
  /\ Need(c.saves => Times(c.val[Len(c.val)], after.val) = 1, "Once")
  /\ Need((c.saves /\ ~deposed) => c.val[Len(c.val)] \notin told.not, "SurelyNot")
  /\ IF deposed
     THEN past' = after /\ UNCHANGED <<log, images>>
     ELSE /\ log' = Append(log, k) /\ images' = Append(images, after)
          /\ past' = past
  /\ IF c.op \in {"claim", "hand over", "renew"}
     THEN Of(c.id, [a EXCEPT !.ends = (k :> EndOf(d, c, term, clock)) @@ @,
                             !.image = IF c.op = "renew" THEN @ ELSE after.val])
     ELSE UNCHANGED lock
  /\ UNCHANGED <<election, told>>

CommitAll(left) ==
  /\ Need(left <= Len(log), "a majority has lost what it had")
  /\ log' = SubSeq(log, Len(log) - left + 1, Len(log))
  /\ images' = SubSeq(images, Len(images) - left, Len(images))
  /\ UNCHANGED <<election, past, lock, told>>

ElectOne(term, lost) ==
  LET kept == Len(log) - lost IN
  /\ Need(kept >= 0, "an election has lost what a majority had")
  /\ election' = term /\ past' = Here1
  /\ log' = SubSeq(log, 1, kept) /\ images' = SubSeq(images, 1, kept + 1)
  /\ UNCHANGED <<lock, told>>

\* One node answers the claim of an update, a majority everything else.
Answer(k) ==
  LET c == TraceSent(k) IN
  /\ Need((c.op = "claim" /\ c.soft) \/ c.op \in {"release", "renew"} \/ ~InLog(k), "it is answered before a majority has it")
  /\ IF c.op \in {"claim", "hand over"}
     THEN Of(c.id, [lock[c.id] EXCEPT !.has = TRUE, !.got = lock[c.id].image, !.image = <<>>])
     ELSE UNCHANGED lock
  /\ UNCHANGED <<election, log, images, past, told>>

\* A claim that was refused may be sent in another form under its id.
Missed1(k) ==
  LET c == TraceSent(k) IN
  /\ IF c.op \in {"claim", "hand over"} THEN Of(c.id, [lock[c.id] EXCEPT !.asked = FALSE]) ELSE UNCHANGED lock
  /\ UNCHANGED <<election, log, images, past, told>>

\* Acknowledged, SurelyNot.
Tell1(change, how) ==
  /\ Need(how = "changed" => Times(change, images[1].val) = 1, "Acknowledged")
  /\ Need(how = "unchanged" => \A i \in 1..Len(images) : Times(change, images[i].val) = 0, "SurelyNot")
  /\ told' = CASE how = "changed"   -> [told EXCEPT !.made = @ \cup {change}]
               [] how = "unchanged" -> [told EXCEPT !.not = @ \cup {change}]
               [] OTHER -> told
  /\ UNCHANGED <<election, log, images, past, lock>>

TheEnd ==
  /\ Need(\A c \in told.made : Times(c, Here1.val) = 1, "Acknowledged")
  /\ PrintT(<<"allowed", trace, at>>)
  /\ UNCHANGED <<election, log, images, past, lock, told>>

Do(e) ==
  CASE e[2] = "send"   -> Send1(e[3])
    [] e[2] = "again"  -> SendAgain(e[3])
    [] e[2] = "run"    -> Run(e[3], e[4], e[5], e[6])
    [] e[2] = "answer" -> Answer(e[3])
    [] e[2] = "missed" -> Missed1(e[3])
    [] e[2] = "commit" -> CommitAll(e[3])
    [] e[2] = "elect"  -> ElectOne(e[3], e[4])
    [] e[2] = "told"   -> Tell1(e[3], e[4])
    [] e[2] = "over"   -> TheEnd

TraceNext ==
  /\ at <= Len(History.steps)
  /\ now' = Event[1]
  /\ Do(Event)
  /\ at' = at + 1
  /\ UNCHANGED <<trace, sent, proc, once, safe>>

\* All that there is of a history at a step follows from the steps before.
Where == <<trace, at>>

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, traceVars>>
=============================================================================
