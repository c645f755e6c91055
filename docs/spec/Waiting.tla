------------------------------- MODULE Waiting -------------------------------
(***************************************************************************)
(* How a waiter comes to know that a key is free (design.md §4.8): the     *)
(* head of one process's queue, and one holder that releases the key or    *)
(* dies.  Safety is in Lock.tla; here all is about being served at last.   *)
(*                                                                         *)
(* The order is: cursor open, word left, look again, sleep.  A holder that *)
(* leaves announces a wake-up if the document had the word.  Wake-ups go   *)
(* to cursors that are open; cursors break.                                *)
(*                                                                         *)
(* A holder may linger (§4.9): it keeps the key after a release, and gives *)
(* it out again.  The waiter sends a notice once it was refused, which the *)
(* holder hears on a cursor of its own.                                    *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS TTL,     \* in ticks
          Dies,    \* the holder may die instead of releasing the key
          Fails,   \* any call of the waiter may fail, again and again, so that the waiter starts from the beginning
          Breaks,  \* the cursor may break
          Lossy,   \* a wake-up may be lost
          Polls,   \* the waiter looks now and then though nothing told it to
          Lingers, \* the holder lingers
          Spare    \* how often it may give the key out again; 0: without bound

VARIABLES
  key,       \* "held", "free", or "mine": the waiter's
  holder,    \* "alive", "idle" while it keeps the key for nobody, "left" or "dead"
  word,      \* the document shows that a process waits
  announce,  \* the holder has a wake-up to send
  cursor,    \* the waiter's cursor is open
  wake,      \* a wake-up has come and was not used up: it is latched
  at,        \* where the waiter is
  still,     \* for how long it has seen the holder's beat unchanged; -1: it has seen none
  listens,   \* the holder's cursor has been open since before its claim
  notice,    \* a notice is on its way to it
  heard,     \* it knows that somebody waits
  uses       \* how often it gave the key out again

keeping == <<listens, notice, heard, uses>>
vars == <<key, holder, word, announce, cursor, wake, at, still, keeping>>

Init == /\ key = "held" /\ holder = "alive" /\ word = FALSE /\ announce = FALSE
        /\ cursor = FALSE /\ wake = FALSE /\ at = "start" /\ still = -1
        /\ listens = Lingers /\ notice = FALSE /\ heard = FALSE /\ uses = 0

-----------------------------------------------------------------------------
(* The holder and the network. *)

MayKeep == Lingers /\ listens /\ ~heard /\ (Spare = 0 \/ uses < Spare)

Keep == /\ holder = "alive" /\ MayKeep /\ holder' = "idle"
        /\ UNCHANGED <<key, word, announce, cursor, wake, at, still, keeping>>

GiveAgain == /\ holder = "idle" /\ MayKeep /\ holder' = "alive"
             /\ uses' = IF Spare = 0 THEN 0 ELSE uses + 1
             /\ UNCHANGED <<key, word, announce, cursor, wake, at, still, listens, notice, heard>>

Hear == /\ notice /\ notice' = FALSE
        /\ heard' \in {heard \/ listens} \cup (IF Lossy THEN {heard} ELSE {})
        /\ UNCHANGED <<key, holder, word, announce, cursor, wake, at, still, listens, uses>>

Deafen == /\ Breaks /\ listens /\ listens' = FALSE
          /\ UNCHANGED <<key, holder, word, announce, cursor, wake, at, still, notice, heard, uses>>

\* Of a key that lingers: by a timer, too.
Release == /\ (holder = "alive" /\ ~MayKeep) \/ holder = "idle"
           /\ key' = "free" /\ holder' = "left" /\ word' = FALSE /\ announce' = word
           /\ UNCHANGED <<cursor, wake, at, still>>
           /\ UNCHANGED keeping

\* What is kept is given out again, or the timer ends it. A holder that may not keep the key any more does not.
Idle        == holder = "idle" /\ (Release \/ GiveAgain)
MustRelease == holder = "alive" \/ ~MayKeep

Announce == /\ announce /\ announce' = FALSE
            /\ wake' \in {wake \/ cursor} \cup (IF Lossy THEN {wake} ELSE {})
            /\ UNCHANGED <<key, holder, word, cursor, at, still>>
            /\ UNCHANGED keeping

Die == /\ Dies /\ holder \in {"alive", "idle"} /\ holder' = "dead"
       /\ UNCHANGED <<key, word, announce, cursor, wake, at, still>>
       /\ UNCHANGED keeping

Tick == /\ holder = "dead" /\ still \in 0..(TTL-1) /\ still' = still + 1
        /\ UNCHANGED <<key, holder, word, announce, cursor, wake, at>>
        /\ UNCHANGED keeping

Break == /\ Breaks /\ cursor /\ cursor' = FALSE /\ wake' = FALSE
         /\ UNCHANGED <<key, holder, word, announce, at, still>>
         /\ UNCHANGED keeping

-----------------------------------------------------------------------------
(* The waiter. *)

OpenCursor == /\ at = "start" /\ at' = "word" /\ cursor' = TRUE
              /\ UNCHANGED <<key, holder, word, announce, wake, still>>
              /\ UNCHANGED keeping

Take == key' = "mine" /\ at' = "done"

\* The word's update finds no document where the key is free; then the claim follows.
LeaveWord == /\ at = "word"
             /\ IF key = "free" THEN Take /\ UNCHANGED word
                ELSE at' = "look" /\ word' = TRUE /\ UNCHANGED key
             /\ UNCHANGED <<holder, announce, cursor, wake, still>>
             /\ UNCHANGED keeping

\* A refusal by a holder that lingers is followed by a notice. The word stands by then.
LookAgain == /\ at = "look"
             /\ IF key = "free" \/ (holder = "dead" /\ still >= TTL) THEN Take /\ UNCHANGED <<still, notice>>
                ELSE at' = "turning" /\ still' = (IF still < 0 THEN 0 ELSE still) /\ notice' = Lingers /\ UNCHANGED key
             /\ UNCHANGED <<holder, word, announce, cursor, wake>>
             /\ UNCHANGED <<listens, heard, uses>>

Sleep == /\ at = "turning" /\ at' = "asleep"
         /\ UNCHANGED <<key, holder, word, announce, cursor, wake, still>>
         /\ UNCHANGED keeping

Woken == /\ at = "asleep" /\ wake /\ wake' = FALSE /\ at' = "look"
         /\ UNCHANGED <<key, holder, word, announce, cursor, still>>
         /\ UNCHANGED keeping

\* The moment at which the holder will have been seen still for its TTL.
Timer == /\ at = "asleep" /\ still >= TTL /\ key = "held" /\ at' = "look"
         /\ UNCHANGED <<key, holder, word, announce, cursor, wake, still>>
         /\ UNCHANGED keeping

Poll == /\ Polls /\ at = "asleep" /\ at' = "look"
        /\ UNCHANGED <<key, holder, word, announce, cursor, wake, still>>
        /\ UNCHANGED keeping

\* After every reopening of the cursor the client looks: what was announced meanwhile went past it.
Reopen == /\ ~cursor /\ at \in {"look", "turning", "asleep"}
          /\ cursor' = TRUE /\ at' = "look"
          /\ UNCHANGED <<key, holder, word, announce, wake, still>>
          /\ UNCHANGED keeping

\* What it saw it remembers.
Fail == /\ Fails /\ at \in {"word", "look", "turning", "asleep"} /\ at' = "start"
        /\ UNCHANGED <<key, holder, word, announce, cursor, wake, still>>
        /\ UNCHANGED keeping

-----------------------------------------------------------------------------
Next == \/ Keep \/ GiveAgain \/ Hear \/ Deafen
        \/ Release \/ Announce \/ Die \/ Tick \/ Break
        \/ OpenCursor \/ LeaveWord \/ LookAgain \/ Sleep \/ Woken \/ Timer \/ Poll \/ Reopen \/ Fail

\* Whatever can be done is done at some time; a call that is made again and again succeeds at some time. The holder
\* releases the key, keeps it, or dies. Nothing makes a call fail, a cursor break, or a holder die.
Fair == /\ WF_vars(MustRelease /\ Release) /\ WF_vars(Keep) /\ WF_vars(Idle) /\ WF_vars(Hear) /\ WF_vars(Announce) /\ WF_vars(Tick)
        /\ SF_vars(OpenCursor) /\ SF_vars(LeaveWord) /\ SF_vars(LookAgain)
        /\ WF_vars(Sleep) /\ WF_vars(Woken) /\ WF_vars(Timer) /\ WF_vars(Poll) /\ SF_vars(Reopen)

Spec == Init /\ [][Next]_vars /\ Fair

TypeOK == key \in {"held", "free", "mine"} /\ still \in -1..TTL

\* Nobody waits for ever.
Served == <>(key = "mine")
=============================================================================
