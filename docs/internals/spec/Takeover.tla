------------------------------ MODULE Takeover ------------------------------
(***************************************************************************)
(* The rule by which a rival takes a key over from a holder that does not  *)
(* answer (design.md §4.3), alone: one key, one acquisition and its        *)
(* renewals, one rival.  The commands of the protocol are in Lock.tla.      *)
(*                                                                         *)
(* The rule.  A rival may drop a holder if                                 *)
(*   1. the record's epoch is that of the election that the rival's hello  *)
(*      told, and by that hello's localTime expireAt is past; or           *)
(*   2. the rival has seen the holder's beat unchanged for its whole TTL,  *)
(*      from the reply of a look to the sending of the swap; or            *)
(*   3. by any primary's clock expireAt is more than a Minute past.        *)
(* The swap names the beat that the rival saw.                             *)
(*                                                                         *)
(* What goes wrong here.  The clocks of two elections' primaries differ by *)
(* whatever Skews allows.  A primary may be deposed and not know: it goes  *)
(* on answering looks and hellos and applies writes that nobody will       *)
(* acknowledge.  An election starts from any log that has what a majority  *)
(* acknowledged, so all else may be lost, or come back two elections       *)
(* later.  A write may be applied long after its sender gave it up, and    *)
(* twice, as long as the log that it meets does not have it already: the   *)
(* driver retries with the same transaction number.  Nothing is assumed of *)
(* the order in which a client meets primaries, unless DriverKeepsUp.      *)
(*                                                                         *)
(* Time is real time in ticks.  Local clocks run true here; drift is       *)
(* arithmetic on intervals, and the margin and the stretched TTL carry it. *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS TTL, Margin,
          Minute,         \* of rule 3; 0 for no rule 3
          Skews,          \* how far a primary's clock may be from real time
          MaxNow,         \* the bounds of the search
          MaxElections, MaxWrites,
          AtSamples,      \* TRUE: a write's reply gives a sample, tagged with the epoch known when it was sent
          DriverKeepsUp   \* TRUE: a client never goes back to the primary of an older election

Elections == 1..MaxElections
Writes    == 1..MaxWrites
None      == [none |-> TRUE]

VARIABLES
  now,      \* real time
  current,  \* the newest election
  skew,     \* skew[e]: the clock of e's primary shows now + skew[e]
  log,      \* log[e]: the states of the key's document on e's primary, the last one current
  own,      \* own[e]: how many of those it had when it was elected
  alive,    \* the elections whose logs may still win an election
  sent,     \* sent[n]: the holder's nth write, as it was sent; the first one acquires
  applied,  \* applied[n]: the elections under which it was applied, twice at most
  sample,   \* the holder's: by which primary's clock it computes, and the epoch that it labels with
  known,    \* the epoch that the holder's last hello told
  met,      \* met.holder, met.rival: the newest election that each has met
  trust,    \* when the holder's lease ends for the holder; its deadline
  saw,      \* the rival's look
  told,     \* the election that the rival's hello told, and with it that primary's clock, which the rival reckons on
  swap,     \* the rival's swap, as it was sent
  granted   \* when the swap was first acknowledged by a majority; -1 before

vars == <<now, current, skew, log, own, alive, sent, applied, sample, known, met, trust, saw, told, swap, granted>>

Last(s)   == s[Len(s)]
Max(a, b) == IF a > b THEN a ELSE b
Clock(e)  == now + skew[e]
Doc(e)    == Last(log[e])

\* The elections whose primary may answer a client: any, for nobody tells a primary that it was deposed. A command may
\* reach any of them that was not yet left behind when it was sent.
Since(e)          == IF DriverKeepsUp THEN e..current ELSE 1..current
Meet(client, e)   == IF DriverKeepsUp THEN met' = [met EXCEPT ![client] = Max(@, e)] ELSE UNCHANGED met

Free == [of |-> "nobody", beat |-> 0, epoch |-> 0, expireAt |-> 0, has |-> {}]

Init ==
  /\ now = 0 /\ current = 1
  /\ \E s \in Skews : skew = [e \in Elections |-> IF e = 1 THEN s ELSE 0]
  /\ log = [e \in Elections |-> IF e = 1 THEN <<Free>> ELSE <<>>]
  /\ own = [e \in Elections |-> IF e = 1 THEN 1 ELSE 0]
  /\ alive = {1}
  /\ sent = <<>> /\ applied = [n \in Writes |-> {}]
  /\ sample = [by |-> 1, epoch |-> 1] /\ known = 1
  /\ met = [holder |-> 1, rival |-> 1]
  /\ trust = -1
  /\ saw = None /\ told = 0 /\ swap = None
  /\ granted = -1

-----------------------------------------------------------------------------
(* The servers. *)

Tick ==
  /\ now < MaxNow /\ now' = now + 1
  /\ UNCHANGED <<current, skew, log, own, alive, sent, applied, sample, known, met, trust, saw, told, swap, granted>>

\* Somebody whose log has all that was acknowledged is elected; its clock is its own.
Elect ==
  /\ current < MaxElections
  /\ \E e \in alive, s \in Skews : \E i \in 1..Len(log[e]) :
       /\ current' = current + 1
       /\ skew' = [skew EXCEPT ![current + 1] = s]
       /\ log' = [log EXCEPT ![current + 1] = SubSeq(log[e], 1, i)]
       /\ own' = [own EXCEPT ![current + 1] = i]
       /\ alive' = alive \cup {current + 1}
  /\ UNCHANGED <<now, sent, applied, sample, known, met, trust, saw, told, swap, granted>>

\* A majority has the newest primary's log up to i, its first own entry at least. No other log can win any more.
Commit ==
  \E i \in own[current]..Len(log[current]) :
    /\ i > 1 \/ alive # {current}
    /\ log' = [log EXCEPT ![current] = SubSeq(@, i, Len(@))]
    /\ own' = [own EXCEPT ![current] = 1]
    /\ alive' = {current}
    /\ granted' = IF granted < 0 /\ log[current][i].of = "rival" THEN now ELSE granted
    /\ UNCHANGED <<now, current, skew, sent, applied, sample, known, met, trust, saw, told, swap>>

\* Every log that can still win begins with what a majority has.
Acknowledged == log[current][1]

Append1(e, doc) == log' = [log EXCEPT ![e] = Append(@, doc)]

-----------------------------------------------------------------------------
(* The holder. *)

HelloToHolder ==
  /\ Len(sent) < MaxWrites
  /\ \E e \in Since(met.holder) :
       /\ sample # [by |-> e, epoch |-> e]
       /\ sample' = [by |-> e, epoch |-> e] /\ known' = e
       /\ Meet("holder", e)
  /\ UNCHANGED <<now, current, skew, log, own, alive, sent, applied, trust, saw, told, swap, granted>>

\* It acquires with its first write and renews while it trusts its lease. One write is under way at a time: an
\* unanswered one is given up.
Send ==
  /\ Len(sent) < MaxWrites
  /\ Len(sent) = 0 \/ now < trust
  /\ sent' = Append(sent, [at |-> now, epoch |-> sample.epoch, expireAt |-> now + skew[sample.by] + TTL, known |-> known, met |-> met.holder])
  /\ UNCHANGED <<now, current, skew, log, own, alive, applied, sample, known, met, trust, saw, told, swap, granted>>

\* A copy of the nth write reaches the primary of an election.
Apply(n, e) ==
  LET w == sent[n]  d == Doc(e)
      matches == IF n = 1 THEN d.of = "nobody" ELSE d.of = "holder" /\ d.beat < n
  IN /\ Cardinality(applied[n]) < 2
     /\ n \notin d.has
     /\ matches
     /\ Append1(e, [of |-> "holder", beat |-> n, epoch |-> w.epoch,
                    expireAt |-> IF n = 1 THEN w.expireAt ELSE Max(d.expireAt, w.expireAt),
                    has |-> d.has \cup {n}])
     /\ applied' = [applied EXCEPT ![n] = @ \cup {e}]

ApplyWrite ==
  \E n \in 1..Len(sent) : \E e \in Since(sent[n].met) :
    /\ Apply(n, e)
    /\ UNCHANGED <<now, current, skew, own, alive, sent, sample, known, met, trust, saw, told, swap, granted>>

\* The answer to the last write: a majority has it. It is trusted from before it was sent.
Answer ==
  LET n == Len(sent) IN
  /\ n > 0
  /\ n \in Acknowledged.has
  /\ now < sent[n].at + TTL - Margin
  /\ trust < sent[n].at + TTL - Margin
  /\ trust' = sent[n].at + TTL - Margin
  /\ Meet("holder", current)
  /\ IF AtSamples THEN \E e \in applied[n] : sample' = [by |-> e, epoch |-> sent[n].known]
                  ELSE UNCHANGED sample
  /\ UNCHANGED <<now, current, skew, log, own, alive, sent, applied, known, saw, told, swap, granted>>

-----------------------------------------------------------------------------
(* The rival. One look and one hello are enough: looking again and finding the same beat adds nothing. *)

Look ==
  /\ saw = None
  /\ \E e \in Since(met.rival) :
       /\ Doc(e).of = "holder"
       /\ saw' = [beat |-> Doc(e).beat, epoch |-> Doc(e).epoch, expireAt |-> Doc(e).expireAt,
                  since |-> now]
       /\ Meet("rival", e)
  /\ UNCHANGED <<now, current, skew, log, own, alive, sent, applied, sample, known, trust, told, swap, granted>>

HelloToRival ==
  /\ told = 0 /\ swap = None
  /\ saw # None \/ ~AtSamples      \* where all comes from hellos, their order with the look does not matter
  /\ \E e \in Since(met.rival) :
       /\ told' = e
       /\ Meet("rival", e)
  /\ UNCHANGED <<now, current, skew, log, own, alive, sent, applied, sample, known, trust, saw, swap, granted>>

SameElection ==
  /\ told # 0
  /\ told = saw.epoch
  /\ saw.expireAt <= Clock(told)

SeenStill == now >= saw.since + TTL

LongPast == Minute > 0 /\ told # 0 /\ saw.expireAt + Minute <= Clock(told)

SendSwap ==
  /\ saw # None /\ swap = None
  /\ SameElection \/ SeenStill \/ LongPast
  /\ swap' = [beat |-> saw.beat]
  /\ UNCHANGED <<now, current, skew, log, own, alive, sent, applied, sample, known, met, trust, saw, told, granted>>

ApplySwap ==
  /\ swap # None
  /\ \E e \in Since(met.rival) :
       /\ Doc(e).of = "holder"
       /\ Doc(e).beat = swap.beat
       /\ Append1(e, [Doc(e) EXCEPT !.of = "rival", !.beat = 0, !.epoch = 0, !.expireAt = 0])
       /\ Meet("rival", e)
  /\ UNCHANGED <<now, current, skew, own, alive, sent, applied, sample, known, trust, saw, told, swap, granted>>

-----------------------------------------------------------------------------
Next == \/ Tick \/ Elect \/ Commit
        \/ HelloToHolder \/ Send \/ ApplyWrite \/ Answer
        \/ Look \/ HelloToRival \/ SendSwap \/ ApplySwap

Spec == Init /\ [][Next]_vars

\* The rival is granted the key no earlier than one margin after the holder's lease has ended for the holder.
Exclusion == granted >= 0 => trust + Margin <= granted

\* The model gets anywhere: this must be violated.
NeverGranted == granted < 0
=============================================================================
