----------------------------- MODULE StoreGraph -----------------------------
(***************************************************************************)
(* Prints what Store.tla says of every state within its bounds: each call, *)
(* each answer that is allowed, and the state that follows.  TLC asks an   *)
(* invariant once of each state.                                           *)
(***************************************************************************)
EXTENDS Store, TLC

Shown(k) == <<k.mode, [j \in 1..Len(k.line) |-> LET w == k.line[j] IN <<w.place, w.mode, w.fresh>>],
              [i \in Ids |-> LET h == k.holders[i] IN <<h.there, h.left, h.weight, h.broken, h.released>>], k.set>>

Printed == \A c \in Calls(key) : \A o \in Outcomes(key, c) : PrintT(ToString(<<"edge", Shown(key), c, o.says, Shown(o.then)>>))
=============================================================================
