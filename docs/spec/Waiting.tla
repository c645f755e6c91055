------------------------------- MODULE Waiting -------------------------------
(***************************************************************************)
(* How a waiter comes to know that a key is free (design.md §4.8): the     *)
(* head of one process's queue, and one holder that releases the key or    *)
(* dies.  Safety is in Lock.tla; here all is about being served at last.   *)
(*                                                                         *)
(* The order is: cursor open, word left, look again, sleep.  A holder that *)
(* leaves announces a wake-up if the document had the word.  Wake-ups go   *)
(* to cursors that are open; cursors break.                                *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS TTL,     \* in ticks
          Dies,    \* the holder may die instead of releasing the key
          Fails,   \* any call of the waiter may fail, again and again, so that the waiter starts from the beginning
          Breaks,  \* the cursor may break
          Lossy,   \* a wake-up may be lost
          Polls    \* the waiter looks now and then though nothing told it to

VARIABLES
  key,       \* "held", "free", or "mine": the waiter's
  holder,    \* "alive", "left" or "dead"
  word,      \* the document shows that a process waits
  announce,  \* the holder has a wake-up to send
  cursor,    \* the waiter's cursor is open
  wake,      \* a wake-up has come and was not used up: it is latched
  at,        \* where the waiter is
  still      \* for how long it has seen the holder's beat unchanged; -1: it has seen none

vars == <<key, holder, word, announce, cursor, wake, at, still>>

Init == /\ key = "held" /\ holder = "alive" /\ word = FALSE /\ announce = FALSE
        /\ cursor = FALSE /\ wake = FALSE /\ at = "start" /\ still = -1

-----------------------------------------------------------------------------
(* The holder and the network. *)

Release == /\ holder = "alive"
           /\ key' = "free" /\ holder' = "left" /\ word' = FALSE /\ announce' = word
           /\ UNCHANGED <<cursor, wake, at, still>>

Announce == /\ announce /\ announce' = FALSE
            /\ wake' \in {wake \/ cursor} \cup (IF Lossy THEN {wake} ELSE {})
            /\ UNCHANGED <<key, holder, word, cursor, at, still>>

Die == /\ Dies /\ holder = "alive" /\ holder' = "dead"
       /\ UNCHANGED <<key, word, announce, cursor, wake, at, still>>

Tick == /\ holder = "dead" /\ still \in 0..(TTL-1) /\ still' = still + 1
        /\ UNCHANGED <<key, holder, word, announce, cursor, wake, at>>

Break == /\ Breaks /\ cursor /\ cursor' = FALSE /\ wake' = FALSE
         /\ UNCHANGED <<key, holder, word, announce, at, still>>

-----------------------------------------------------------------------------
(* The waiter. *)

OpenCursor == /\ at = "start" /\ at' = "word" /\ cursor' = TRUE
              /\ UNCHANGED <<key, holder, word, announce, wake, still>>

Take == key' = "mine" /\ at' = "done"

\* The word's update finds no document where the key is free; then the claim follows.
LeaveWord == /\ at = "word"
             /\ IF key = "free" THEN Take /\ UNCHANGED word
                ELSE at' = "look" /\ word' = TRUE /\ UNCHANGED key
             /\ UNCHANGED <<holder, announce, cursor, wake, still>>

LookAgain == /\ at = "look"
             /\ IF key = "free" \/ (holder = "dead" /\ still >= TTL) THEN Take /\ UNCHANGED still
                ELSE at' = "turning" /\ still' = (IF still < 0 THEN 0 ELSE still) /\ UNCHANGED key
             /\ UNCHANGED <<holder, word, announce, cursor, wake>>

Sleep == /\ at = "turning" /\ at' = "asleep"
         /\ UNCHANGED <<key, holder, word, announce, cursor, wake, still>>

Woken == /\ at = "asleep" /\ wake /\ wake' = FALSE /\ at' = "look"
         /\ UNCHANGED <<key, holder, word, announce, cursor, still>>

\* The moment at which the holder will have been seen still for its TTL.
Timer == /\ at = "asleep" /\ still >= TTL /\ key = "held" /\ at' = "look"
         /\ UNCHANGED <<key, holder, word, announce, cursor, wake, still>>

Poll == /\ Polls /\ at = "asleep" /\ at' = "look"
        /\ UNCHANGED <<key, holder, word, announce, cursor, wake, still>>

\* After every reopening of the cursor the client looks: what was announced meanwhile went past it.
Reopen == /\ ~cursor /\ at \in {"look", "turning", "asleep"}
          /\ cursor' = TRUE /\ at' = "look"
          /\ UNCHANGED <<key, holder, word, announce, wake, still>>

\* What it saw it remembers.
Fail == /\ Fails /\ at \in {"word", "look", "turning", "asleep"} /\ at' = "start"
        /\ UNCHANGED <<key, holder, word, announce, cursor, wake, still>>

-----------------------------------------------------------------------------
Next == \/ Release \/ Announce \/ Die \/ Tick \/ Break
        \/ OpenCursor \/ LeaveWord \/ LookAgain \/ Sleep \/ Woken \/ Timer \/ Poll \/ Reopen \/ Fail

\* Whatever can be done is done at some time; a call that is made again and again succeeds at some time. The holder
\* releases the key or dies. Nothing makes a call fail, a cursor break, or a holder die.
Fair == /\ WF_vars(Release) /\ WF_vars(Announce) /\ WF_vars(Tick)
        /\ SF_vars(OpenCursor) /\ SF_vars(LeaveWord) /\ SF_vars(LookAgain)
        /\ WF_vars(Sleep) /\ WF_vars(Woken) /\ WF_vars(Timer) /\ WF_vars(Poll) /\ SF_vars(Reopen)

Spec == Init /\ [][Next]_vars /\ Fair

TypeOK == key \in {"held", "free", "mine"} /\ still \in -1..TTL

\* Nobody waits for ever.
Served == <>(key = "mine")
=============================================================================
