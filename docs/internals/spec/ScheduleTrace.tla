--------------------------- MODULE ScheduleTrace ---------------------------
(***************************************************************************)
(* A history of the real package schedule, asked of Schedule.tla: is it    *)
(* one of the behaviours that the specification allows?  The tests of      *)
(* schedule make the histories, one for each job; README.md beside this    *)
(* file tells how to run it.                                               *)
(*                                                                         *)
(* Observed are each change of the job's document, in their order, and     *)
(* when functions are called and return.  So nothing is searched: each     *)
(* change is one step of Schedule, made of what the document shows, and    *)
(* must leave the document that was observed.  Need prints what does not   *)
(* hold; the history ends there, and is refused.                           *)
(*                                                                         *)
(* A process read the clock at most History.slack before its command was   *)
(* applied.  That clock is at most History.early ahead for due times, and  *)
(* History.ahead for all else.  Times are in ms.                           *)
(*                                                                         *)
(* It refines Schedule where that is too coarse: any number of renewals,   *)
(* which are applied late, too; several pauses; RunNow.                    *)
(***************************************************************************)
EXTENDS Schedule

CONSTANTS Traces, Numbers \* the histories, and the numbers of runs

VARIABLES
  trace, at, \* which history, and which step of it comes next
  asked      \* when RunNow was called

ASSUME TLCSet(1, Traces)  \* so that they are evaluated once
History == TLCGet(1)[trace]
Event   == History.steps[at]
Kind    == Event[2]

Need(condition, text) == IF condition THEN TRUE ELSE PrintT(<<"refused", trace, at, text>>) /\ FALSE

-----------------------------------------------------------------------------
(* What takes the place of Schedule's constants and definitions. *)

TraceBeside  == History.beside
TraceOnce    == History.once
TraceEach    == History.each
TraceMaxLate == History.maxLate
TraceRetries == History.retries
TraceTTL     == History.ttl
TraceTimes   == History.times
TraceIds     == {<<n>> : n \in Numbers}
TraceOwn(p)  == Event[3]
TraceAt(name) == IF name = "" THEN {} ELSE History.plans[name]
TraceNotYet  == TRUE
TraceLately  == {Event[3]}

\* A call of RunNow is a due time for a process that knows of it: that claims it.
Planned(plans)  == TLCEval(UNION {{d \in At(plans[i].plan) : plans[i].from < d /\ d <= Until(plans, i)} : i \in 1..Len(plans)})
TraceDue(plans) == Planned(plans) \cup (IF Kind = "send" THEN asked \cap {Event[5]} ELSE {})

\* What RunNow asked for may be found by the second poll.
TraceTooLate(d, t) ==
  LET said == CASE Kind = "send" -> Event[6] = "too late" [] Kind = "begin" -> Event[4] [] OTHER -> FALSE
  IN t - d > MaxLate + (IF d \in asked /\ ~said THEN 60000 ELSE 0)

TraceCome(d)   == d <= now + History.early
TraceEndOf(c)  == Event[5]
TraceHow(i)    == {Event[4]}
TraceAgain(h)  == Event[6]
TraceOver(r)   == IF r.left # "" \/ r.end <= now + History.ahead THEN {r.beat} ELSE {}

\* A run that its own process has claimed and not begun; that may have forgotten it.
TraceNeverBegan(i, j) == Event[11] /\ claim[j].is \in {"has", "undoes"}

-----------------------------------------------------------------------------
TraceInit ==
  /\ trace \in 1..Len(Traces) /\ at = 1 /\ asked = {}
  /\ now = 0
  /\ whole = <<[plan |-> History.plan, from |-> History.from]>>
  /\ doc = [plans |-> whole, edition |-> 1, decided |-> History.from, runs |-> TLCEval([i \in {} |-> None]), seq |-> 0, paused |-> FALSE, since |-> -1]
  /\ claim = TLCEval([i \in Ids |-> Nobody])
  /\ renewal = None /\ end = TLCEval([i \in Ids |-> None])
  /\ up = [p \in {1} |-> "up"] /\ plan = [p \in {1} |-> None]
  /\ fates = [d \in Times |-> 0] /\ told = [d \in Times |-> 0]
  /\ loose = {} /\ mute = {} /\ begun = {} /\ top = 0 /\ wrong = {}

\* Due times that are dropped are written as ranges, of which each has what was due by then, and the run's own due time.
Covered(ranges, due) == IF ranges = {} THEN {} ELSE {d \in Planned(whole) \cup {due} : \E x \in ranges : x[1] <= d /\ d <= x[2]}

\* The document that was observed: what is decided, the edition, whether it is paused; and of each run its number, due time,
\* outcome, fails, deaths and verdict, whether it has begun, and what it drops.
Shows(d, o) ==
  /\ d.decided = o[1] /\ d.edition = o[2] /\ d.paused = o[3]
  /\ DOMAIN d.runs = {<<r[1]>> : r \in o[4]}
  /\ \A r \in o[4] : LET s == d.runs[<<r[1]>>] IN
       /\ <<s.due, s.left, s.fails, s.deaths, s.verdict, s.begun>> = <<r[2], r[3], r[4], r[5], r[6], r[7]>>
       /\ s.drops = Covered(r[8], r[2])
Leaves(o) == Need(Shows(doc', o), "it leaves another document than the specification says")

\* When a process may have read the clock for a claim of d: where that makes a difference.
Readings(d) ==
  LET later == {n \in Times : n > d /\ n - d < History.slack + 100000}
      next  == IF later = {} THEN d ELSE Min(later)
      edges == {d, next - 1, next} \cup {x + MaxLate + y : x \in {d, next}, y \in {0, 1, 60000, 60001}}
  IN {now, now + History.early, Max({0, now - History.slack})} \cup {t \in edges : now - History.slack <= t /\ t <= now + History.early}

\* A claim: <<time, "send", i, m, due, verdict, ranges, j, fails, deaths, unbegun>>, and how it goes on with the run j. By a clock
\* that showed t it is one of these, or none.
Claims(t) ==
  LET e == Event
      p == IF e[8] = None THEN Pick(doc.plans, e[4], t) ELSE <<Repetition(e[3], e[8], t)>>
      Is(c) == c.due = e[5] /\ c.verdict = e[6] /\ c.drops = Covered(e[7], e[5]) /\ (e[8] = None \/ (c.fails = e[9] /\ c.deaths = e[10]))
  IN IF p # None THEN {c \in {p[1]} : Is(c)} ELSE {}

AskSend(m, due, j) ==
  /\ Need(~doc.paused, "the job is paused")
  /\ IF j = None
     THEN /\ Need(m <= doc.decided /\ {d \in Planned(doc.plans) : m < d /\ d <= doc.decided} = {}, "it takes for decided what is not")
          /\ Need(doc.decided < due, "its due time is decided")
          /\ Need(Beside \/ Open = {}, "a run is open")
     ELSE /\ Need(j \in Open, "it goes on with a run that is not there")
          /\ Need(\A k \in IF Beside THEN {j} ELSE Open : Over(doc.runs[k]) # {}, "a run is open that is not over")
          /\ Need(doc.runs[j].again <= now + History.ahead, "it goes on with a run before its time")
  /\ Need(Claims(now) # {} \/ \E t \in Readings(due) : Claims(t) # {}, "the specification makes another claim of this document")

Made(j) ==
  LET c == CHOOSE c \in Claims(IF Claims(now) # {} THEN now ELSE CHOOSE t \in Readings(Event[5]) : Claims(t) # {}) : TRUE
  IN c @@ (IF j = None THEN [m |-> Event[4], edition |-> doc.edition] ELSE [beat |-> doc.runs[j].beat])

\* Its run, as "has" if it is begun, or returned, later.
Granted(i, is, token) ==
  /\ Need(token > doc.seq, "tokens do not rise")
  /\ Need(ENABLED (ApplyClaim(i) /\ claim'[i].is = is), "the specification does not grant it")
  /\ ApplyClaim(i) /\ claim'[i].is = is

\* A renewal may be applied late, and again.
Renewed(i, until, begins) ==
  /\ Need(i \in Open, "it renews a run that is not there")
  /\ Need(doc.runs[i].left = "", "it renews a run that was left")
  /\ Need(doc.runs[i].end > now - History.slack, "it renews a run that has run out")
  /\ Need(until >= doc.runs[i].end, "it shortens a run")
  /\ Need(begins => claim[i].is \in {"runs", "ends"}, "it says that a run has begun that has not")
  /\ doc' = [doc EXCEPT !.runs[i].end = until, !.runs[i].beat = @ + 1, !.runs[i].begun = @ \/ begins, !.runs[i].drops = IF begins THEN {} ELSE @]
  /\ claim' = [claim EXCEPT ![i].by = now]
  /\ UNCHANGED <<now, renewal, end, up, plan, whole, fates, told, loose, mute, begun, top, wrong>>

AskBegin(i) ==
  /\ Need(claim[i].is = "has", "it begins what was not claimed, or again")
  /\ Need(Trusts(i), "its lease is over")
  /\ Need(\A j \in Ids \ {i} : (claim[j].is = "runs" /\ Trusts(j)) => Beside /\ claim[j].due # claim[i].due, "another runs")
  /\ Need(Once => claim[i].verdict # "" \/ claim[i].due \notin begun, "it began before, and AtMostOnce")

Meets(from, idle) ==
  /\ Need(from >= Max({doc.decided, doc.plans[Len(doc.plans)].from}), "the new plan holds from a time that is decided, or before the last one's")
  /\ Need(from <= Max({now + History.ahead, doc.decided, doc.plans[Len(doc.plans)].from}), "the new plan holds from a later time on")
  /\ Need(idle => Open = {}, "it takes plans out while a run is open")
  /\ plan' = [plan EXCEPT ![1] = <<[edition |-> doc.edition, from |-> from, decided |-> doc.decided, idle |-> idle]>>]
  /\ UNCHANGED <<now, doc, claim, renewal, end, up, whole, fates, told, loose, mute, begun, top, wrong>>

Same == UNCHANGED <<now, doc, claim, renewal, end, up, plan, whole, fates, told, loose, mute, begun, top, wrong>>

TheEnd ==
  /\ Need(OneFate, "OneFate") /\ Need(Told, "Told") /\ Need(ToldOnce, "ToldOnce") /\ Need(Tokens, "Tokens")
  /\ PrintT(<<"allowed", trace, at>>)
  /\ Same

\* A step of Schedule, which leaves the document o.
May(e) ==
  CASE e[2] = "return" -> Return(e[3]) /\ end'[e[3]] = <<[left |-> e[5], again |-> IF e[5] = "" THEN 0 ELSE e[6]]>>
    [] e[2] = "begin"  -> Begin(e[3]) /\ claim'[e[3]].late = e[4]
    [] e[2] = "doubt"  -> Doubt(e[3])
    [] e[2] = "undo"   -> Undo(e[3])
    [] e[2] = "end"    -> end[e[3]] # None /\ ApplyEnd(e[3])
    [] e[2] = "plan"   -> ApplyPlan(1)
    [] e[2] = "pause"  -> Pause
    [] e[2] = "resume" -> Resume

Do(e) ==
  CASE e[2] = "send"  -> AskSend(e[4], e[5], e[8]) /\ Send(e[3], Made(e[8]))
    [] e[2] = "claim" -> Granted(e[3], e[4], e[6]) /\ Leaves(e[7])
    [] e[2] = "renew" -> Renewed(e[3], e[4], e[5]) /\ Leaves(e[6])
    [] e[2] = "meet"  -> Meets(e[4], e[5])
    [] e[2] = "ask"   -> Same
    [] e[2] = "over"  -> TheEnd
    [] OTHER -> /\ (e[2] = "begin" => AskBegin(e[3]))
                /\ Need(ENABLED May(e), "the specification has no such step")
                /\ May(e)
                /\ (e[2] \in {"undo", "end"} => Leaves(e[4]))
                /\ (e[2] \in {"plan", "pause", "resume"} => Leaves(e[4]) /\ Need(doc'.plans = e[5], "it leaves other plans"))

TraceNext ==
  /\ at <= Len(History.steps)
  /\ IF now < Event[1]
     THEN now' = Event[1] /\ at' = at /\ UNCHANGED <<doc, claim, renewal, end, up, plan, whole, fates, told, loose, mute, begun, top, wrong, asked>>
     ELSE Do(Event) /\ at' = at + 1 /\ asked' = IF Kind = "ask" THEN asked \cup {Event[3]} ELSE asked
  /\ UNCHANGED trace

\* All that there is of a history at a step follows from the steps before.
Where == <<trace, at, now>>

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, trace, at, asked>>
=============================================================================
