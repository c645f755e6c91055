------------------------------ MODULE Schedule ------------------------------
(***************************************************************************)
(* Jobs (package schedule): the document of one job, and processes that    *)
(* have it.  ../schedule.md has the protocol, README.md beside this file   *)
(* tells how to run it.                                                    *)
(*                                                                         *)
(* Claims, repetitions, renewals, ends, leaves, undo, return, changes of   *)
(* the plan and pauses; two plans; functions that fail; processes that are *)
(* stopped, are cut off, or die.  TLC shows within bounds that each due    *)
(* time up to `decided` has one fate, or is in `runs`; that each fate is   *)
(* told, once; that no two runs are under way at once, unless Beside; that *)
(* with Once (AtMostOnce) none begins twice; and that tokens rise.         *)
(*                                                                         *)
(* What is sent.  A command that was sent may be applied at any later      *)
(* time, or never.  A claim is applied once: its session remembers it; and *)
(* its reply may be lost.  A look is no step: a claim is made of what the  *)
(* document shows when it is sent, and is applied to what the document has *)
(* become.  In place of `decided` it may name a guess.  That a command is  *)
(* refused is no step either: it may be applied later, or never.           *)
(*                                                                         *)
(* Taken for granted.  No election takes a command back; an end that is    *)
(* judged past is past (Takeover.tla); an undo settles what it undoes      *)
(* (Lock.tla).  A process that stalls between its last look at its lease   *)
(* and the call of the function counts as one that stalls within that.     *)
(* All processes have the same options.  Left out: RunNow, Forget, a clock *)
(* that was wrong, jitter, the past.                                       *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Procs,
          Newer, Older,          \* those that start while others run: with the plan "new", or "old" as the others have
          OldTimes, NewTimes,    \* the due times of each
          MostDeaths,
          Rows,                  \* what else there is: "renew", "stop", "fail", "pause", "guess", "early"
          MaxNow, MaxClaims, MaxDeaths

\* The options of the job, in whose place a configuration has others.
Beside  == FALSE
Once    == FALSE
Each    == FALSE
MaxLate == 99   \* in ticks: none
Retries == 0
TTL     == 1

VARIABLES
  now,
  doc,       \* the document
  claim,     \* claim[i]: a claim as it was sent, and what its process makes of it
  renewal,   \* renewal[i]: when a renewal of i was sent; 0: none; -1: it was applied
  end,       \* end[i]: its end, while that may be applied
  up,        \* up[p]: "out", "up" (it has read the job, and its plan was entered), or "dead"
  plan,      \* plan[p]: its change of the plan, while that may be applied
  whole,     \* all plans that there were, and the time from which each holds
  fates,     \* fates[d]: how often it was written what at last became of a due time
  told,      \* told[d]: how often that was told
  loose,     \* the due times whose run ran out, so that they may be told again
  mute,      \* those whose process was cut off, or died, between the end and telling it
  begun,     \* the due times that began
  top,       \* the greatest token of a run that began
  wrong      \* what a beginning broke

vars == <<now, doc, claim, renewal, end, up, plan, whole, fates, told, loose, mute, begun, top, wrong>>

None   == <<>>
Ids    == Procs \X (1..MaxClaims)
Times  == 1..MaxNow
Own(p) == IF p \in Newer THEN "new" ELSE "old"
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : x <= y

-----------------------------------------------------------------------------
(* Plans. *)

At(name) == CASE name = "old" -> OldTimes [] name = "new" -> NewTimes [] name = "" -> {}

\* The due times of plans: each holds after its `from`, up to the next one's.
Until(plans, i) == IF i < Len(plans) THEN plans[i + 1].from ELSE MaxNow
Due(plans) == {d \in Times : \E i \in 1..Len(plans) : d \in At(plans[i].plan) /\ plans[i].from < d /\ d <= Until(plans, i)}

\* The end of the last pause.
Resumed(plans) == Max({0} \cup {plans[i].from : i \in {j \in 2..Len(plans) : plans[j - 1].plan = ""}})

TooLate(d, t) == t - d > MaxLate

\* What a process claims at t that takes those up to m for decided, and what that drops: pick in aim.go. With "early" its clock is ahead.
Pick(plans, m, t) ==
  LET after == TLCEval({d \in Due(plans) : d > m /\ d > Resumed(plans)})
      come  == TLCEval({d \in after : d <= IF Each THEN t - MaxLate ELSE t})
      one   == IF come # {} THEN Max(come) ELSE Min(after)
      early == IF "early" \in Rows THEN 1 ELSE 0
  IN IF after = {} THEN None
     ELSE IF one > t + early THEN None
     ELSE <<[due |-> one, first |-> Min({d \in Due(plans) : d > m}), verdict |-> IF TooLate(one, t) THEN "too late" ELSE "",
             drops |-> {d \in Due(plans) : m < d /\ d <= IF TooLate(one, t) THEN one ELSE one - 1}]>>

-----------------------------------------------------------------------------
(* The document, and what is applied to it. *)

\* A run: end: when it runs out; beat: of its last write, Left if it was left, so that no renewal finds it; was: what end was before
\* the renewal.
Left == 9
Open == DOMAIN doc.runs

\* The beats of which it is found over, by a look of now or of an earlier time.
Over(r) == (IF r.left # "" \/ now >= r.end THEN {r.beat} ELSE {}) \cup (IF r.beat = 1 /\ now >= r.was THEN {0} ELSE {})

Without(runs, i) == TLCEval([j \in DOMAIN runs \ {i} |-> runs[j]])
With(runs, i, r) == TLCEval([j \in DOMAIN runs \cup {i} |-> IF j = i THEN r ELSE runs[j]])
Counted(f, S)    == [d \in Times |-> IF d \in S THEN f[d] + 1 ELSE f[d]]

\* A process trusts its lease from before it sent what prolonged it.
Trusts(i) == claim[i].is \in {"has", "runs", "ends"} /\ now < claim[i].by + TTL

\* The filters of "The commands" in schedule.md. What is not Possible any more never will be.
Possible(c) == IF c.dead = None THEN doc.edition = c.edition ELSE c.dead \in Open /\ doc.runs[c.dead].beat = c.beat
Grants(c) ==
  /\ ~doc.paused /\ Possible(c)
  /\ c.dead = None => /\ c.m <= doc.decided /\ doc.decided < c.first
                      /\ Beside \/ Open = {}

\* When the run of a claim runs out.
EndOf(c) == c.by + TTL

\* The reply comes in time, or the process undoes the claim.
ApplyClaim(i) ==
  LET c == claim[i]
      fresh == c.dead = None
      run == [due |-> c.due, fails |-> c.fails, deaths |-> c.deaths, tok |-> doc.seq + 1, end |-> EndOf(c), was |-> 0, beat |-> 0,
              begun |-> FALSE, drops |-> c.drops, verdict |-> c.verdict, left |-> "", again |-> 0]
  IN
  /\ c.net /\ Grants(c)
  /\ doc' = [doc EXCEPT !.decided = IF fresh THEN c.due ELSE @, !.seq = @ + 1, !.runs = With(Without(@, c.dead), i, run)]
  /\ fates' = Counted(fates, IF fresh THEN c.drops ELSE c.drops \ doc.runs[c.dead].drops)
  /\ loose' = IF ~fresh /\ doc.runs[c.dead].left = "" THEN loose \cup doc.runs[c.dead].drops \cup {doc.runs[c.dead].due} ELSE loose
  /\ \E is \in IF c.is # "asks" THEN {c.is} ELSE {"undoes"} \cup (IF now < c.by + TTL THEN {"has"} ELSE {}) :
       claim' = [claim EXCEPT ![i].is = is, ![i].net = FALSE, ![i].tok = doc.seq + 1, ![i].back = is = "has" /\ fresh /\ now < c.due]
  /\ UNCHANGED <<now, renewal, end, up, plan, whole, told, mute, begun, top, wrong>>

ApplyRenewal(i) ==
  /\ renewal[i] > 0 /\ i \in Open
  /\ doc.runs[i].beat < 1 /\ doc.runs[i].end > renewal[i]
  /\ doc' = [doc EXCEPT !.runs[i].was = doc.runs[i].end, !.runs[i].end = renewal[i] + TTL, !.runs[i].beat = 1, !.runs[i].begun = TRUE, !.runs[i].drops = {}]
  /\ renewal' = [renewal EXCEPT ![i] = -1]
  /\ claim' = [claim EXCEPT ![i].by = IF Trusts(i) THEN renewal[i] ELSE @]
  /\ UNCHANGED <<now, end, up, plan, whole, fates, told, loose, mute, begun, top, wrong>>

\* The end of a run, or its leave. The end is told when it is written, if its process waits for the answer; a verdict was told before.
ApplyEnd(i) ==
  LET e == end[i][1]
      last == e.left = "" /\ doc.runs[i].verdict = ""
  IN
  /\ end[i] # None /\ end' = [end EXCEPT ![i] = None]
  /\ i \in Open
  /\ doc' = [doc EXCEPT !.runs = IF e.left = "" THEN Without(@, i)
                                 ELSE [@ EXCEPT ![i].left = e.left, ![i].again = e.again, ![i].beat = Left, ![i].drops = {}]]
  /\ fates' = IF last THEN Counted(fates, {doc.runs[i].due}) ELSE fates
  /\ told' = IF last /\ claim[i].is = "ends" /\ ~claim[i].late THEN Counted(told, {doc.runs[i].due}) ELSE told
  /\ claim' = [claim EXCEPT ![i].is = IF @ = "ends" THEN "over" ELSE @]
  /\ UNCHANGED <<now, renewal, up, plan, whole, loose, mute, begun, top, wrong>>

-----------------------------------------------------------------------------
(* The plan, and people. *)

\* A process that reads the job for the first time with another plan than the last appends its own. `from` is not before its clock then.
Meet(p) ==
  /\ up[p] = "out"
  /\ IF doc.plans[Len(doc.plans)].plan = Own(p)
     THEN up' = [up EXCEPT ![p] = "up"] /\ UNCHANGED plan
     ELSE /\ plan[p] = None
          /\ plan' = [plan EXCEPT ![p] = <<[edition |-> doc.edition, from |-> Max({now, doc.decided, doc.plans[Len(doc.plans)].from}), decided |-> doc.decided,
                                           idle |-> Open = {}]>>]
          /\ UNCHANGED up
  /\ UNCHANGED <<now, doc, claim, renewal, end, whole, fates, told, loose, mute, begun, top, wrong>>

\* Plans whose due times are all decided are taken out, unless a claim may be returned.
RECURSIVE Trim(_, _)
Trim(plans, decided) == IF Len(plans) > 1 THEN IF plans[2].from <= decided THEN Trim(Tail(plans), decided) ELSE plans ELSE plans

PlanMatches(c) == doc.edition = c.edition /\ doc.decided = c.decided

ApplyPlan(p) ==
  LET c == plan[p][1]
      span == [plan |-> Own(p), from |-> c.from]
  IN
  /\ plan[p] # None /\ plan' = [plan EXCEPT ![p] = None]
  /\ IF PlanMatches(c)
     THEN /\ doc' = [doc EXCEPT !.plans = Append(IF c.idle THEN Trim(@, c.decided) ELSE @, span), !.edition = @ + 1]
          /\ whole' = Append(whole, span)
          /\ up' = [up EXCEPT ![p] = IF @ = "out" THEN "up" ELSE @]
     ELSE UNCHANGED <<doc, whole, up>>
  /\ UNCHANGED <<now, claim, renewal, end, fates, told, loose, mute, begun, top, wrong>>

\* Pause and Resume, once. Their dates are read before they are applied.
NotYet == doc.since = -1
Lately == {t \in {now - 1, now} : t >= 0}

Pause ==
  /\ "pause" \in Rows /\ ~doc.paused /\ NotYet
  /\ \E t \in Lately : doc' = [doc EXCEPT !.paused = TRUE, !.since = t]
  /\ UNCHANGED <<now, claim, renewal, end, up, plan, whole, fates, told, loose, mute, begun, top, wrong>>

Paused(plans, t) ==
  LET kept == {i \in 2..Len(plans) : plans[i].from < doc.since}
      last == plans[Len(plans)].plan
  IN SubSeq(plans, 1, Max({1} \cup kept)) \o <<[plan |-> "", from |-> doc.since], [plan |-> last, from |-> t]>>

Resume ==
  /\ doc.paused
  /\ \E t \in Lately : /\ t >= doc.since
                       /\ doc' = [doc EXCEPT !.paused = FALSE, !.edition = @ + 1, !.plans = Paused(@, t)]
                       /\ whole' = Paused(whole, t)
  /\ UNCHANGED <<now, claim, renewal, end, up, plan, fates, told, loose, mute, begun, top, wrong>>

-----------------------------------------------------------------------------
(* A process. *)

\* is: how far it is with a claim: asks, has (it was granted), runs, ends, undoes, over; net: it may still be applied; by: when that
\* was sent on which its trust rests; dead, beat: the run that it repeats, and the beat of which it was found over; late: it was too late
\* when the claim was granted, and that is told; back: it was granted before the due time.
Nobody == [is |-> "", net |-> FALSE, by |-> 0, due |-> 0, m |-> 0, first |-> 0, edition |-> 0, drops |-> {}, verdict |-> "",
           dead |-> None, beat |-> 0, fails |-> 0, deaths |-> 0, tok |-> 0, late |-> FALSE, back |-> FALSE]

Becomes(i, is) == claim' = [claim EXCEPT ![i].is = is]
Quiet          == UNCHANGED <<now, up, plan, whole, loose, mute>>
NoBeginning    == UNCHANGED <<begun, top, wrong>>

\* Its claims have the numbers from one on.
Free(i) ==
  /\ up[i[1]] = "up" /\ claim[i].is = "" /\ (i[2] > 1 => claim[<<i[1], i[2] - 1>>].is # "")
  /\ Cardinality({j \in Ids : claim[j].is # ""}) < MaxClaims

Send(i, c) ==
  /\ claim' = [claim EXCEPT ![i] = c @@ [Nobody EXCEPT !.is = "asks", !.net = TRUE, !.by = now]]
  /\ Quiet /\ NoBeginning /\ UNCHANGED <<doc, renewal, end, fates, told>>

\* The due time that comes next.
Claim(i) ==
  LET guesses == IF "guess" \in Rows THEN {d \in Times : doc.decided < d /\ d <= now} ELSE {} IN
  /\ Free(i) /\ ~doc.paused /\ (Beside \/ Open = {})
  /\ \E m \in {doc.decided} \cup guesses :
       LET p == Pick(doc.plans, m, now) IN p # None /\ Send(i, [m |-> m, edition |-> doc.edition] @@ p[1])

\* A claim of its own that it has not carried out.
NeverBegan(i, j) == j[1] = i[1] /\ claim[j].is \in {"asks", "has", "undoes"}

\* How i goes on with the run j, which is over: repetition in watch.go.
Repetition(i, j, t) ==
  LET r    == doc.runs[j]
      unb  == r.left = "unbegun" \/ (r.left = "" /\ NeverBegan(i, j))
      died == r.left = "" /\ ~unb
      dead == r.deaths + (IF died THEN 1 ELSE 0)
      why  == (died /\ dead >= MostDeaths) \/ (Once /\ ~unb)
      late == ~why /\ TooLate(r.due, t) /\ (unb \/ (died /\ ~r.begun) \/ r.left = "failed")
  IN [due |-> r.due, dead |-> j] @@
     IF r.verdict # ""
     THEN [drops |-> r.drops, verdict |-> r.verdict, fails |-> r.fails, deaths |-> r.deaths]
     ELSE [drops |-> IF why \/ late THEN r.drops \cup {r.due} ELSE r.drops,
           verdict |-> IF why THEN "died" ELSE IF late THEN "too late" ELSE "",
           fails |-> r.fails + (IF r.left = "failed" THEN 1 ELSE 0), deaths |-> dead]

Repeat(i, j) ==
  /\ Free(i) /\ ~doc.paused /\ now >= doc.runs[j].again
  /\ \E beat \in Over(doc.runs[j]) : Send(i, [beat |-> beat] @@ Repetition(i, j, now))

\* No answer; or the lease is lost before the run began; or the process is told to stop before that.
Doubt(i) ==
  /\ claim[i].is = "asks" \/ (claim[i].is = "has" /\ (~Trusts(i) \/ "stop" \in Rows))
  /\ Becomes(i, "undoes")
  /\ Quiet /\ NoBeginning /\ UNCHANGED <<doc, renewal, end, fates, told>>

\* undo, in the claim's session: what comes later of it is refused. If it was granted before its due time: return.
Undo(i) ==
  LET c == claim[i] IN
  /\ c.is = "undoes"
  /\ claim' = [claim EXCEPT ![i].is = "over", ![i].net = FALSE]
  /\ IF i \notin Open THEN UNCHANGED <<doc, fates>>
     ELSE IF c.back /\ doc.decided = c.due
     THEN /\ doc' = [doc EXCEPT !.runs = Without(@, i), !.decided = c.m]
          /\ fates' = [d \in Times |-> IF d \in c.drops THEN fates[d] - 1 ELSE fates[d]]
     ELSE /\ doc' = [doc EXCEPT !.runs[i].left = "unbegun", !.runs[i].beat = Left, !.runs[i].again = now]
          /\ UNCHANGED fates
  /\ Quiet /\ NoBeginning /\ UNCHANGED <<renewal, end, told>>

Come(d) == d <= now

\* The due time has come: it tells what the claim has dropped, and calls the function. With a verdict, or if it is too late by now, it
\* ends the run instead.
Begin(i) ==
  LET c == claim[i] IN
  /\ c.is = "has" /\ Trusts(i) /\ Come(c.due)
  /\ \E late \in {FALSE} \cup (IF c.verdict = "" /\ c.dead = None /\ TooLate(c.due, now) THEN {TRUE} ELSE {}) :
       /\ told' = Counted(told, c.drops \cup (IF late THEN {c.due} ELSE {}))
       /\ IF late \/ c.verdict # ""
          THEN /\ claim' = [claim EXCEPT ![i].is = "ends", ![i].late = late]
               /\ end' = [end EXCEPT ![i] = <<[left |-> "", again |-> 0]>>]
               /\ NoBeginning
          ELSE /\ Becomes(i, "runs")
               /\ begun' = begun \cup {c.due} /\ top' = c.tok
               /\ wrong' = wrong \cup (IF c.tok <= top THEN {"tokens"} ELSE {}) \cup (IF c.due \in begun THEN {"twice"} ELSE {})
               /\ UNCHANGED end
  /\ Quiet /\ UNCHANGED <<doc, renewal, fates>>

Renew(i) ==
  /\ "renew" \in Rows /\ claim[i].is = "runs" /\ Trusts(i) /\ renewal[i] = 0 /\ now > claim[i].by
  /\ renewal' = [renewal EXCEPT ![i] = now]
  /\ Quiet /\ NoBeginning /\ UNCHANGED <<doc, claim, end, fates, told>>

\* The function returns: as it should, with an error, or because the process stops. From Again on it is repeated.
How(i)     == {"ok"} \cup ({"fail", "stop"} \cap Rows)
Again(how) == IF how = "fail" THEN now + 1 ELSE now
Return(i) ==
  LET c == claim[i] IN
  /\ c.is = "runs" /\ Trusts(i)
  /\ \E how \in How(i) :
       end' = [end EXCEPT ![i] = <<CASE how = "stop" /\ ~Once -> [left |-> "stopped", again |-> Again(how)]
                                     [] how = "fail" /\ c.fails < Retries /\ ~TooLate(c.due, Again(how)) -> [left |-> "failed", again |-> Again(how)]
                                     [] OTHER -> [left |-> "", again |-> 0]>>]
  /\ Becomes(i, "ends")
  /\ Quiet /\ NoBeginning /\ UNCHANGED <<doc, renewal, fates, told>>

\* Its lease is over. A function that has not returned is one that died. An end that was not answered may have been written, or be
\* written later, by this process too.
Lose(i) ==
  /\ claim[i].is \in {"runs", "ends"} /\ ~Trusts(i)
  /\ mute' = IF end[i] # None /\ end[i][1].left = "" THEN mute \cup {claim[i].due} ELSE mute
  /\ Becomes(i, "over")
  /\ NoBeginning /\ UNCHANGED <<now, doc, renewal, end, up, plan, whole, fates, told, loose>>

Die(p) ==
  /\ up[p] = "up" /\ Cardinality({q \in Procs : up[q] = "dead"}) < MaxDeaths
  /\ up' = [up EXCEPT ![p] = "dead"]
  /\ claim' = TLCEval([i \in Ids |-> IF i[1] = p THEN [claim[i] EXCEPT !.is = "over"] ELSE claim[i]])
  /\ mute' = mute \cup {claim[i].due : i \in {j \in Ids : j[1] = p /\ claim[j].is = "ends"}}
  /\ NoBeginning /\ UNCHANGED <<now, doc, renewal, end, plan, whole, fates, told, loose>>

Tick ==
  /\ now < MaxNow /\ now' = now + 1
  /\ UNCHANGED <<doc, claim, renewal, end, up, plan, whole, fates, told, loose, mute, begun, top, wrong>>

-----------------------------------------------------------------------------
First == <<[plan |-> "old", from |-> 0]>>

Init ==
  /\ now = 0
  /\ doc = [plans |-> First, edition |-> 1, decided |-> 0, runs |-> TLCEval([i \in {} |-> None]), seq |-> 0, paused |-> FALSE, since |-> -1]
  /\ claim = TLCEval([i \in Ids |-> Nobody])
  /\ renewal = TLCEval([i \in Ids |-> 0]) /\ end = TLCEval([i \in Ids |-> None])
  /\ up = TLCEval([p \in Procs |-> IF p \in Newer \cup Older THEN "out" ELSE "up"]) /\ plan = TLCEval([p \in Procs |-> None])
  /\ whole = First
  /\ fates = [d \in Times |-> 0] /\ told = [d \in Times |-> 0]
  /\ loose = {} /\ mute = {} /\ begun = {} /\ top = 0 /\ wrong = {}

Next ==
  \/ Tick \/ Pause \/ Resume
  \/ \E p \in Procs : Meet(p) \/ ApplyPlan(p) \/ Die(p)
  \/ \E i \in Ids :
       \/ ApplyClaim(i) \/ ApplyRenewal(i) \/ ApplyEnd(i)
       \/ Claim(i) \/ Doubt(i) \/ Undo(i) \/ Begin(i) \/ Renew(i) \/ Return(i) \/ Lose(i)
       \/ \E j \in Open : Repeat(i, j)

Spec == Init /\ [][Next]_vars

\* States that differ in nothing that matters count as one: what became of claims that are over, and commands that can find nothing.
Alike   == Permutations(Procs \ (Newer \cup Older))
Matters(i) ==
  LET c == claim[i] IN
  CASE c.net /\ Possible(c) -> c
    [] c.is \in {"has", "runs", "ends", "undoes"} -> [c EXCEPT !.first = 0, !.beat = 0]
    [] c.is = "asks" -> [Nobody EXCEPT !.is = "asks"]
    [] OTHER -> [Nobody EXCEPT !.is = IF c.is = "" THEN "" ELSE "over"]
View == <<now, doc, [i \in Ids |-> Matters(i)], [i \in Ids |-> IF i \in Open \/ claim[i].net THEN <<renewal[i], end[i]>> ELSE None],
          up, plan, whole, fates, told, loose, mute, begun, top, wrong>>

-----------------------------------------------------------------------------
(* What must hold. *)

Runs(d)  == {i \in Open : doc.runs[i].due = d /\ doc.runs[i].verdict = ""}
Ending(d) == \E i \in Ids : claim[i].is = "ends" /\ claim[i].due = d

\* Each due time up to `decided` has its fate, or is in `runs`; never both, and never two.
OneFate == \A d \in Times :
  /\ Cardinality(Runs(d)) + fates[d] <= 1
  /\ (d \in Due(whole) /\ d <= doc.decided) => Cardinality(Runs(d)) + fates[d] = 1

\* Each fate is told, or stands where it is told from.
Told == \A d \in Times : fates[d] > 0 /\ told[d] = 0 => d \in mute \/ \E i \in Open : d \in doc.runs[i].drops

\* It is told once, unless its run ran out; and what is told is a fate.
ToldOnce == \A d \in Times : d \notin loose => told[d] <= 1 /\ (told[d] = 1 => fates[d] = 1 \/ Ending(d) \/ d \in mute)

\* Never two runs at a time, unless Beside; never two of one due time.
Exclusion == \A i, j \in Ids :
  (i # j /\ claim[i].is = "runs" /\ claim[j].is = "runs" /\ Trusts(i) /\ Trusts(j)) => Beside /\ claim[i].due # claim[j].due

\* With AtMostOnce none begins twice. Tokens rise with the beginnings, unless Beside.
NeverTwice == Once => "twice" \notin wrong
Tokens     == ~Beside => "tokens" \notin wrong

\* With Each nothing is dropped for a later due time.
InOrder == Each /\ MaxLate = 99 => \A i \in Open : doc.runs[i].drops \subseteq {doc.runs[i].due} \cup {d \in Times : d <= Resumed(whole)}
=============================================================================
