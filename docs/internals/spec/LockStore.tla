----------------------------- MODULE LockStore -----------------------------
(***************************************************************************)
(* Lock.tla does nothing to a key that Store.tla does not allow: a command *)
(* leaves the record as it is, or as the call that it is of says.  So what *)
(* is shown of calls, by asking a store each of them, is about the same    *)
(* protocol as what is shown of commands.                                  *)
(*                                                                         *)
(* A command takes effect when a primary applies it, as a call that is as  *)
(* late as that.  One election: a log that loses what no majority had is   *)
(* no call of anybody, and no store is asked for it.                       *)
(***************************************************************************)
EXTENDS Lock

CONSTANT Barred   \* why renewals of a holder are refused, of which Lock tells the fact: "broken" or "released"

Left(i) == Max(0, doc.holders[i].end - Clock)

Mapped ==
  [mode    |-> IF Holders(doc) = {} THEN "none" ELSE doc.holders[CHOOSE i \in Holders(doc) : TRUE].mode,
   holders |-> [i \in Ids |-> IF Holds(doc, i)
                              THEN [there |-> TRUE, left |-> Left(i),
                                    broken   |-> doc.holders[i].barred /\ Barred = "broken",
                                    released |-> doc.holders[i].barred /\ Barred = "released", weight |-> 1]
                              ELSE [there |-> FALSE, left |-> 0, broken |-> FALSE, released |-> FALSE, weight |-> 1]],
   line    |-> <<>>]

S == INSTANCE Store WITH Places <- {}, Alike <- FALSE, Unasked <- {}, Keeps <- {1}, Lates <- 0..MaxNow, Lazy <- TRUE, key <- Mapped

\* How long a command was on its way, which its end tells.
Late(c, lasts) == Clock - (c.end - lasts)

\* The call that a command is of. One that only deletes what is empty is of none.
Meant(c) ==
  CASE c.op \in {"insert", "swap", "join"} -> {<<"acquire", c.id, c.mode, 0, {}, Late(c, TTL)>>}
    [] c.op = "renew"                      -> {<<"renew", c.id, Late(c, TTL)>>}
    [] c.op \in {"release", "leave"}       -> {<<"release", c.id>>}
    [] c.op = "min-hold"                   -> {<<"keep", c.id, 1, Late(c, 1)>>}
    [] c.op = "break"                      -> {<<"break", c.id, FALSE>>}
    [] c.op = "transfer"                   -> {<<"transfer", c.old, c.id, Late(c, TTL)>>}
    [] c.op \in {"undo", "undo-join"}      -> {IF c.old \in Ids THEN <<"undo transfer", c.id, c.old>> ELSE <<"undo", c.id>>}
    [] OTHER                               -> {}

IsCall(m) == m \in S!Calls(Mapped) /\ \E o \in S!Outcomes(Mapped, m) : Mapped' = o.then

Refined ==
  /\ S!Init
  /\ [][\/ \E c \in net : Apply(c) /\ \E m \in Meant(c) : IsCall(m)
        \/ Tick /\ IsCall(<<"tick">>)
        \/ Sweep /\ IsCall(<<"sweep">>)]_Mapped
=============================================================================
